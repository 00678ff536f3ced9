"""From one architecture to another, one decision at a time."""
