"""Bytes on one device: weights, caches, activations, what an engine allots, and what would make a model fit."""
