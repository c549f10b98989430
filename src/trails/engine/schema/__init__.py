"""Changes of types: rules on all stored data, taking over a schema, merging two."""
