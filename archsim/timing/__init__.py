"""Seconds of one step on one device: kernel calls of a graph, the roofline under them, fitted time models over it."""
