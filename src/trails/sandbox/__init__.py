"""The sandbox: confined worker processes for untrusted SPARQL and RDF."""
