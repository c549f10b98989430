"""Built-in operations on data and its history; ``request/operations.py`` lists them."""
