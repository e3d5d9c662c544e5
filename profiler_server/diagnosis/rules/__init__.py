"""The rules, a file for those that turn one knob or read the same facts: each judges a `Case` and returns a `Finding`, or nothing.

Must not import another file of rules, a room above, or torch.
"""
