"""What a user writes: decorators, predicate(), Node classes, selections, Context.

Decorators check and mark; they register nothing, so that two graphs in one
process never share a registry.
"""
