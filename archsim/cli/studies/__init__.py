"""What several commands cross over models, devices or loads, and how its rows are printed."""
