"""Foundations without dependencies: errors, diagnostics, units, numbers."""
