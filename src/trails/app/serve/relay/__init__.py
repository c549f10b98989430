"""Many processes on one folder: one owner, and fronts that relay sessions to it."""
