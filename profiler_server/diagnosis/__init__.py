"""From the tables of a rank to what bounds it: `facts` are measured, `rules` judge them, `ranking` predicts and orders.

`limits` holds the thresholds. `facts`, `what_if` and `wording` lie under the rules, which import only them.
Must not import torch.
"""
