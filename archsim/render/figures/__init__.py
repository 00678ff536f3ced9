"""Charts of results: one look, drawn by plotly."""
