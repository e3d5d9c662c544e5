"""Ranks side by side, and the collectives that join them."""
