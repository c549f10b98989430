"""Branches, commits, differences and merges."""
