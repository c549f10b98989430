"""Pure functions from descriptors to documents: same registry, same bytes."""
