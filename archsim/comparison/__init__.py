"""Models and devices side by side, and how sure a ranking is."""
