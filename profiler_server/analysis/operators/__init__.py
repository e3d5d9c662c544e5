"""What rules and pages know of operators, kernels and modules: sums, groups, operations and bytes."""
