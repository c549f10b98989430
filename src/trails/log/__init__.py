"""Truth B: what is known, as an append-only chain of commits."""
