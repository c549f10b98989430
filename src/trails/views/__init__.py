"""Folds of the log: each knows its position, catches up when opened, can be rebuilt."""
