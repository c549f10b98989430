"""Changes as values: steps of a schema, diffs of files, proposals."""
