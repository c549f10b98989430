"""The built-in tools: what can be done with any graph, whatever it holds."""
