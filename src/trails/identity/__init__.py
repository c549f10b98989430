"""Credentials: tokens of our own and access tokens of others; who presents one is told by it."""
