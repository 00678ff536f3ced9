"""Documents that people write: YAML with positions, catalogs and typed specs."""
