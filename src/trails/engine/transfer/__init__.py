"""Files in and out: load and export."""
