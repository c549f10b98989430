"""The one write path: delta → validate the state after it → append → apply → acknowledge.

Every writer (ORM, capability, mutate, load, merge) opens a ``Write``, puts and removes
nodes, and finishes it: one commit, or an error that names every violation, and nothing
written. Changes go first into the node index's open transaction, so rules that look at
other nodes see the graph as it would be.
"""
