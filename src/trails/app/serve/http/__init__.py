"""HTTP: sockets, connections, limits, and the front before the surfaces."""
