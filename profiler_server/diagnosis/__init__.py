"""The diagnosis of a rank: from its tables to what its steps are bound by.

`rules` judge the measured facts; `ranking` predicts and orders. `limits` has the thresholds. Of this package, rules
import only `limits` and `what_if`. Must not import torch.
"""
