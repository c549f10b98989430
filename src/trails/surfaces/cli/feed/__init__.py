"""Commands about the change feed."""
