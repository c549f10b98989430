"""Truth A: what can be called and what can be stored, as one immutable value."""
