"""Wires to the outside: they turn words into requests and results into words, no more."""
