"""Sentences on useful tokens, and on the share of the device's peak that the model uses."""

from __future__ import annotations

from profiler_server.facts.useful import ModelUse, TokenRate
from profiler_server.format import format_count, format_duration, format_number_of, format_rate, format_share


def say_tokens(rate: TokenRate, noun: str) -> str:
    """Return how many of the tokens per second are no padding, and how many count in the loss."""
    share = format_share(rate.real_frac)
    if rate.per_s is None or rate.real_per_s is None:
        parts = [f"{share} of the tokens are no padding"]
    else:
        speed = f"{format_count(round(rate.real_per_s))} of {format_count(round(rate.per_s))} tokens per second"
        parts = [f"{speed} are no padding, {share}"]
    if rate.trained_frac is not None:
        parts.append(f"{format_share(rate.trained_frac)} count in the loss")
    parts.append(f"{format_number_of(rate.looks, noun)} looked at")
    return "; ".join(parts)


def say_use(use: ModelUse, noun: str) -> str:
    """Return numerator, denominator and source of the utilisation, or why it is unknown."""
    if use.frac is None or use.precisions is None:
        return use.missing
    work = f"{format_rate(use.flops_per_step, 'FLOP')} a {noun} of {format_duration(use.step_ns)}"
    peaks = " and ".join(
        name.upper() if share >= 0.9995 else f"{name.upper()} ({format_share(share)})"
        for name, share in use.precisions.items()
    )
    return f"{work}, of {format_rate(use.peak_flops_per_s, 'FLOP/s')}: the dense peak for {peaks} ({use.source})"
