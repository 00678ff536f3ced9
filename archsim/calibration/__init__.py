"""From measured kernels and runs to the constants of time models."""
