"""Grids of workloads priced at once: ranges, columns, conditions, Pareto fronts."""
