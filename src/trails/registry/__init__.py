"""The registry: what can be called and stored, as one immutable value."""
