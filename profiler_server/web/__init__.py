"""The HTTP face: app, routes, links, templates, headers, errors.

May import pages and every room below. Must not import the command line, or torch.
"""
