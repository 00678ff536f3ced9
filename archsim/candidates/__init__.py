"""The best spec for a budget, and the change that helps most."""
