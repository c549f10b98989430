"""Verify, repair, recover, back up, clean up."""
