"""REST: routes that translate HTTP to calls of a backend, and their outcomes back."""
