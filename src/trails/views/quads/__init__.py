"""The quads view: Oxigraph holding one branch, for SPARQL."""
