"""The op graph as a PyTorch module: the only place that imports torch."""
