"""Full-text search over the texts of fields: analysis, query grammar, index, ranking and proof.

A pure library on tantivy: it is handed texts and knows neither the log nor the engine.
"""
