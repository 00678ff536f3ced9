"""Numeric claims about transformers computed and judged, and what published models chose."""
