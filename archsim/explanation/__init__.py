"""Formulas with letters and numbers, and the papers they come from."""
