"""Other people's model files, read into the same spec."""
