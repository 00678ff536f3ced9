"""GGUF files as models: from the header alone."""
