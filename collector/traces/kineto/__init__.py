"""How a Kineto trace becomes tables: decode, classify, nest, link, sum; one file for each.

May import `collector.traces.families`, `collector.traces.format`, `collector.format.parts`, `collector.format.schema`. Must not
import torch or a format.
"""
