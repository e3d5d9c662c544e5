"""One file per suggestion, and nothing else: a rule judges a `Case` and returns a `Finding`, or nothing.

Must not import another rule, a room above, or torch.
"""
