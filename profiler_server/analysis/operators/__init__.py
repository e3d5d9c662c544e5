"""Operators, kernels and modules: sums, groups, operations and bytes."""
