"""What an assistant may ask about the runs below a folder: the report, cut to short answers, over MCP.

Stands on `report`, `store` and the comparison. `server.py` is the only file that imports `mcp`. It must not import
`pages` or `web`, and must not compute a figure of its own.
"""
