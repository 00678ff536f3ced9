"""Many requests on one engine: steady states of continuous batching."""
