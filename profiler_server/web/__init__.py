"""The HTTP interface by which browsers and programs read runs: app, routes, links, templates, headers, errors.

Must not import the command line, or torch.
"""
