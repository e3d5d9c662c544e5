"""Draws ordinary training programs with a seed: some with one planted cause, some healthy.

A program is text put together from a kind of work, a way to feed it, a style of loop and a plant. It imports nothing of
ours and says nothing of what is planted; that is written in `cases.json`, away from the programs.
"""
