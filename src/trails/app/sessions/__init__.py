"""What the command line works with: a graph that is open here, or behind a server."""
