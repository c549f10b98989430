"""Frozen values without I/O: kinds, types, capabilities, commits, selections."""
