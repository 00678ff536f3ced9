"""Counting, traffic, memory and time of an op graph."""
