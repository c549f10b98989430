"""What the built-in operations answer, one struct each, the same on every surface."""
