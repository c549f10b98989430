"""Rules: each value of a node, references, and what holds between nodes."""
