"""Options that some commands share, one module for each subject."""
