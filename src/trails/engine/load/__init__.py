"""Load files into a graph: NDJSON, RDF and CSV, streamed into one commit."""
