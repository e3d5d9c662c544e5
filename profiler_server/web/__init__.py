"""FastAPI app, routes, errors to HTTP, templating, security headers.

May import profiler_server.pages and all below. Must not import a room above it, or torch.
"""
