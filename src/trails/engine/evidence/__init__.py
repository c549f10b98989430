"""Evidence: bounded reads, records by reference, and exports, each for one actor at one commit."""
