"""Credentials: our own tokens, and access tokens of other issuers, each verified into an actor."""
