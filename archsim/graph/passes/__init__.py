"""Rewrites of the graph: each takes a block and returns another."""
