"""Exact numbers of a graph: parameters, bytes, FLOPs and state."""
