"""Reads folders of runs and explains them: store, analysis, rules, timeline, pages, web, cli. Never imports torch."""
