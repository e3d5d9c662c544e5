"""The diagnosis of a rank: from its tables to the cause that bounds its steps.

`rules` judge the measured facts; `ranking` predicts and orders. `limits` holds the thresholds. Of this package, rules
import only `limits` and `what_if`. Must not import torch.
"""
