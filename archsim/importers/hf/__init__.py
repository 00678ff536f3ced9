"""Hugging Face configurations as models."""
