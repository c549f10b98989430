"""Mutate: change the graph in one call and one commit, by SPARQL Update or typed operations.

Both forms end on the one write path, so what they may not do is what no writer may. A
call that changes nothing makes no commit.
"""
