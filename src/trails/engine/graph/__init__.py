"""One versioned graph: its log, its views, its branches and snapshots, its feed."""
