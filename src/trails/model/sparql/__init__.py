"""SPARQL texts: their tokens, and the classes and fields that they name."""
