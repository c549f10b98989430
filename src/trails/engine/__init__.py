"""Where the two truths meet: validation, the one write path, queries."""
