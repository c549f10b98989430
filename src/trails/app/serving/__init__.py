"""Many processes on one project folder: the owner serves, the others go through it."""
