"""SPARQL: binding, stored queries, untrusted text, hints for what matches nothing."""
