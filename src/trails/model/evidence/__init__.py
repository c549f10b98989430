"""What a reader is shown of a text: windows, the characters they are cut between, search hits."""
