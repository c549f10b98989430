"""The log in PostgreSQL: imported only where a graph's settings name a server."""
