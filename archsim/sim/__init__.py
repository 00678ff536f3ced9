"""From a model, a device and a workload to an answer."""
