"""MCP: the official SDK, with a fast path in front of it, on one backend.

The only package that imports the SDK.
"""
