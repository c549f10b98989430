"""Migrations of a graph: which a branch has, what pending ones would do, apply, roll back."""
