"""How a Kineto trace becomes tables: decode, classify, nest, link, sum; one file for each.

Must not import torch or a format.
"""
