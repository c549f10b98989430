"""MCP clients, and how a graph gets into their configuration."""
