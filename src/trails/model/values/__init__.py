"""Values that are classes of their own: JSON and blobs."""
