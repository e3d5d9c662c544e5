"""The rules. A file has the rules that turn one knob or read the same facts. Each judges a `Case` and returns a
`Finding` or None.

Must not import another file of rules, a room above, or torch.
"""
