"""Webhooks: HTTP requests to other servers when a graph changes."""
