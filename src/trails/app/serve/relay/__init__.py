"""Many processes on one folder: owners, sessions, and bytes between them."""
