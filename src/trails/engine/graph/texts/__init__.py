"""The text view of one graph: an index for each searched field, and its differences on branches."""
