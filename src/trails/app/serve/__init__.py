"""``trails serve``: the owner of a folder, over HTTP and standard streams."""
