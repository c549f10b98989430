"""The node index: listing, sorting, paging, uniqueness and references, in SQLite."""
