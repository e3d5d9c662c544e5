"""Perfetto's protobuf to the text of a Kineto trace, so that nothing after it knows the format.

May import `kineto/scratch.py` and what stands beside this room. Field numbers are those of Perfetto's trace packets.
"""
