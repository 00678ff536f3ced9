"""What a serving engine is: its names, and the time it adds around kernels."""
