"""Validation: the values of a node, its references and size, and rules between nodes."""
