"""One module per page; each returns a typed context for its template.

Must not import another page, a rule, the web room, or torch.
"""
