"""Safetensors files and indices as models: from the headers alone."""
