"""The rules. A file has the rules that change one setting or read the same facts. Each rule judges a `Case` and returns
a `Finding` or None.

Must not import another file of rules, a room above, or torch.
"""
