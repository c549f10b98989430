"""Schemas of other languages, read into specifications of types and stored queries.

Pure: text in, ``ImportedSchema`` out. What can't be said in Trails, or is said otherwise, is a note
that names its place; nothing is dropped silently. ``request/meta`` makes files of the result.
"""
