"""What a shell asks before a command runs: which commands there are, and what they take."""
