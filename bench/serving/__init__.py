"""Servers under load: each on one core, asked by the same generator on another."""
