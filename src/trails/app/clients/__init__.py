"""Programs that speak MCP, and how a graph gets into their configuration."""
