"""The drawings of pages: charts as Plotly dicts, and bars laid out by the server.

Must not import analysis or pages: figures take plain numbers.
"""
