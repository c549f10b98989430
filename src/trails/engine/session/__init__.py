"""What callers hold: a graph as one actor uses it, contexts, arguments, results."""
