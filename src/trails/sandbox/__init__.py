"""What runs untrusted text: checks, and the worker that is confined."""
