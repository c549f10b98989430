"""MCP: the official SDK and a fast door in front of it, on one backend.

The only package that imports the SDK.
"""
