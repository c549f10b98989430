"""A running server as a Python program uses it: ``trails.connect``."""
