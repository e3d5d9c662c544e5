"""The HTTP interface: app, routes, links, templates, headers, errors.

Must not import the command line, or torch.
"""
