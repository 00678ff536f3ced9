"""One small function per family of Hugging Face configs, registered by `model_type`."""
