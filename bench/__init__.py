"""The speed of Trails beside that of bare parts: ours, a peer and a floor, in one run."""
