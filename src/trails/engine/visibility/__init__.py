"""What an actor may see and change: access, refs, and history as it sees it."""
