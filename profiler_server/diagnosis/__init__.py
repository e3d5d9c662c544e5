"""The diagnosis of a rank, from its tables to what bounds it. `facts` are measured, `rules` judge them, `ranking`
predicts and orders.

`limits` holds the thresholds. Rules import only `facts`, `what_if` and `wording`. Must not import torch.
"""
