"""How much longer work on processors takes while others want them: processor sharing among threads that come and go.

A thread computes, then waits for something else, and computes again. When more of them can run than there are cores,
each gets an equal part. With rates that depend only on how many can run, such a network has a product-form solution
that does not depend on how long single bursts are, only on their mean share (Baskett, Chandy, Muntz and Palacios,
"Open, closed, and mixed networks of queues", 1975), so a job needs no more than its share of processor time.

v(R) = min(1, P / R) / (1 + slowdown · (min(R, P) − 1)⁺ / (P − 1)) is the speed of each of R threads on P cores.
P(j) ∝ c_j · Π_{m ≤ j} 1 / v(m) is how likely j of the others can run, c_j the coefficients of Π (1 − ρ + ρ x).
E[1 / v(j + 1)] over that is how much longer the processor part of a job takes (the arrival theorem of Sevcik and
Mitrani, and of Lavenberg and Reiser, 1980 to 1981): it sees the others as they would be without it.

Not counted: priorities, affinities of single threads, the length of a time slice, and that two hardware threads of one
core give less than two cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_OTHERS = 64
"""So many threads of other programs are counted at most."""


@dataclass(frozen=True)
class Processors:
    """The cores of a loop. Work on all of them at once is slower by `slowdown` than on one alone (memory, clock, caches)."""

    cores: float
    slowdown: float = 0.0

    def find_speed(self, runnable: float) -> float:
        """Return v(R), how fast each of so many threads goes on; 1 is that of one alone."""
        if runnable <= 0:
            return 1.0
        busy = max(0.0, min(runnable, self.cores) - 1.0) / max(self.cores - 1.0, 1.0)
        return min(1.0, self.cores / runnable) / (1.0 + self.slowdown * busy)


@dataclass(frozen=True)
class Customer:
    """Threads that can run together for a share of their time, if nothing holds them up."""

    share: float
    threads: float = 1.0


def list_others(others: float) -> tuple[Customer, ...]:
    """Return the programs that ask for so many cores: all of one core each, but for the last."""
    if math.isnan(others) or others <= 0:
        return ()
    others = min(others, float(MOST_OTHERS))
    whole = int(others)
    rest = (Customer(others - whole),) if others > whole else ()
    return (*(Customer(1.0) for _ in range(whole)), *rest)


def find_stretch(processors: Processors, others: Sequence[Customer], threads: float = 1.0) -> float:
    """Return how many times longer the processor part of a job of so many threads takes beside these others than alone."""
    return weigh_stretch(processors, mix(others), threads)


def mix(customers: Iterable[Customer], onto: Sequence[float] = (1.0,)) -> tuple[float, ...]:
    """Return `onto` times Π (1 − ρ + ρ x^k) as its coefficients.

    A number of threads that is not whole lies between its neighbours.
    """
    coefficients = list(onto)
    for customer in customers:
        share = min(max(customer.share, 0.0), 1.0)
        low = max(1, int(customer.threads))
        part = max(customer.threads - low, 0.0)
        found = [value * (1.0 - share) for value in coefficients] + [0.0] * (low + (part > 0.0))
        for place, value in enumerate(coefficients):
            found[place + low] += value * share * (1.0 - part)
            if part:
                found[place + low + 1] += value * share * part
        coefficients = found
    return tuple(coefficients)


def weigh_stretch(processors: Processors, coefficients: Sequence[float], threads: float = 1.0) -> float:
    """Return the same for others whose product was made by `mix`."""
    weight, whole, slower = 1.0, 0.0, 0.0
    for number, coefficient in enumerate(coefficients):
        weight /= processors.find_speed(number)
        likely = coefficient * weight
        whole += likely
        slower += likely / processors.find_speed(number + threads)
    return slower / whole * processors.find_speed(threads)


def average_stretch(processors: Processors, seen: Iterable[Customer]) -> float:
    """Return the stretch beside threads that were seen able to run, or running, for these shares of the time."""
    return sum(likely / processors.find_speed(number + 1) for number, likely in enumerate(mix(seen)))
