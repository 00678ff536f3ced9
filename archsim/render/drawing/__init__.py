"""Architectures as SVG pictures, made of the spec and its op graph alone."""
