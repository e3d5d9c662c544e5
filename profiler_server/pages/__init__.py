"""The pages of a run. `build` of each module or package here returns a typed context for the page's template.

A page must not import another page, a rule, `profiler_server/web`, or torch.
"""
