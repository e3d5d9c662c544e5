"""The formats of figures on the screen and in texts. No other module formats milliseconds, percent and mebibytes.

Texts are in the files of `words`: an entry for each kind of fact, with a text for each case. An entry `a.b` inherits
the texts of the entry `a`. A text that is code, not prose, begins in the line below the text's name. A field of a text
is a figure with its format: `{limits.DRIFT_FRAC:share}`. `{ranks:was|were}` is the first word if the number `ranks` is
one, else the second. Any text may have the fields of `name_work`: `{noun}` is what the run calls a step.
"""

from __future__ import annotations

import math
import re
import signal
import string
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from collector.format.phases import PHASE_LABELS, Bound, list_work
from collector.format.schema.wording import form_plural as form_plural
from collector.format.schema.wording import format_number_of as format_number_of
from collector.format.schema.wording import format_ranks as format_ranks
from collector.format.schema.wording import format_ranks_named as format_ranks_named

_TIME_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_BYTE_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
_RATE_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
ABSENT = "n/a"
# Characters that make a browser write the following text from right to left, up to the end of the line if their end
# mark is cut off.
_TURNS = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)))


def format_duration(value_ns: float | None) -> str:
    """Return a time with three significant digits and one unit, `178 ms`; n/a for None, NaN and infinity."""
    if value_ns is None or not math.isfinite(value_ns):
        return ABSENT
    if value_ns == 0:
        return "0 ms"
    for size, unit in _TIME_UNITS:
        if abs(value_ns) >= 0.9995 * size:
            return f"{_significant(value_ns / size)} {unit}"
    return f"{_significant(value_ns)} ns"


def choose_time_unit(peak_ns: float) -> tuple[float, str]:
    """Return a time unit that suits times up to `peak_ns`: its length in ns, and its name."""
    if peak_ns == 0 or not math.isfinite(peak_ns):
        return 1e6, "ms"
    return next(((size, unit) for size, unit in _TIME_UNITS if abs(peak_ns) >= 0.9995 * size), _TIME_UNITS[-1])


def choose_byte_unit(peak_bytes: float) -> tuple[float, str]:
    """Return a binary unit that suits sizes up to `peak_bytes`: its size in bytes, and its name."""
    return next(((float(size), unit) for size, unit in _BYTE_UNITS if abs(peak_bytes) >= size), (1.0, "B"))


def format_share(value_frac: float | None) -> str:
    """Return a fraction as percent, `18.2 %`, with a second decimal below 0.1 %; n/a for None, NaN and infinity."""
    if value_frac is None or not math.isfinite(value_frac):
        return ABSENT
    percent = 100.0 * value_frac
    return f"{percent:.2f} %" if 0 < abs(percent) < 0.1 else f"{percent:.1f} %"


def format_sampled(share_frac: float, error_frac: float) -> str:
    """Return a share that was estimated from samples, with its error: `61 ± 9 %`. Both are in whole percents; the error
    is at least 1.
    """
    return f"{round(100 * share_frac)} ± {max(round(100 * error_frac), 1)} %"


def format_change(change_frac: float) -> str:
    """Return a relative change as percent with its sign, `+3.0 %`; without a sign if the percent rounds to zero."""
    text = f"{100.0 * change_frac:+.1f} %"
    return text[1:] if text[1:] == "0.0 %" else text.replace("-", "−")


def format_difference(change_ns: float) -> str:
    """Return a change of a time with its sign, `+1.20 ms`, `−340 µs`; without a sign if it is zero."""
    sign = "+" if change_ns > 0 else "−" if change_ns < 0 else ""
    return sign + format_duration(abs(change_ns))


def format_shares(values_frac: Sequence[float], firm: Collection[int] = ()) -> tuple[str, ...]:
    """Return the shares of a whole as percent with one decimal, rounded so that they add up to the whole.

    Shares at the indexes `firm` are rounded alone, if the remaining shares can absorb the rounding error. So a share
    that several pages show has the same text on each page.
    """
    exact = [1000.0 * value for value in values_frac]
    tenths = [math.floor(value) for value in exact]
    for index in firm:
        tenths[index] = round(float(f"{exact[index] / 10:.1f}") * 10)
    missing = round(sum(exact)) - sum(tenths)
    order = sorted(range(len(exact)), key=lambda i: (i in firm, tenths[i] - exact[i]))
    order = order if missing > 0 else [index for index in reversed(order) if tenths[index] and index not in firm]
    for index in order[: abs(missing)]:
        tenths[index] += 1 if missing > 0 else -1
    return tuple(f"{value / 10:.1f} %" for value in tenths)


_QUOTED_PHASES = ("data_wait", "h2d", "communication")
"""Phases whose share of the step is also shown alone on some pages."""


def format_phase_shares(shares_frac: Mapping[str, float]) -> dict[str, str]:
    """Return the share of each phase of a step as text, which is the same on every page.

    The texts add up to the whole as in `format_shares`. A share below 0.1 % has two decimals instead of `0.0 %`.
    """
    firm = [index for index, name in enumerate(shares_frac) if name in _QUOTED_PHASES]
    shown = format_shares(tuple(shares_frac.values()), firm)
    return {
        name: format_share(share) if 0 < share < 0.001 else text
        for (name, share), text in zip(shares_frac.items(), shown, strict=True)
    }


def describe_micro_batches(count: int, noun: str = "step") -> str:
    """Return a sentence on the micro-batches of a step (gradient accumulation); "" if `count` is below 2."""
    if count < 2:
        return ""
    return (
        f"A {noun} is {count} micro-batches: it sums the gradients of {count} backwards before it updates "
        "(gradient accumulation)."
    )


def format_bytes(value: float | None) -> str:
    """Return bytes in binary units, `1.5 GiB`; n/a for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return ABSENT
    for size, unit in _BYTE_UNITS:
        if abs(value) >= size:
            return f"{_significant(value / size)} {unit}"
    return "0 B"


def format_count(value: float | None) -> str:
    """Return a count with thousands separators, `12,480`; n/a for None. A fractional count below 100 has two decimals."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:,.2f}"


def format_rate(value_per_s: float | None, unit: str) -> str:
    """Return a rate with a decimal prefix, `624 TFLOP/s` for the unit FLOP/s; n/a for None, NaN and infinity."""
    if value_per_s is None or not math.isfinite(value_per_s):
        return ABSENT
    for size, prefix in _RATE_PREFIXES:
        if abs(value_per_s) >= 0.9995 * size:
            return f"{_significant(value_per_s / size)} {prefix}{unit}"
    return f"{_significant(value_per_s)} {unit}"


def shorten_middle(name: str, limit: int = 60) -> str:
    """Return a name of at most `limit` characters, with its middle cut out, where kernel names differ least. Characters
    that reverse text are removed.
    """
    name = name.translate(_TURNS)
    if len(name) <= limit:
        return name
    head = (limit - 1) * 2 // 3
    return f"{name[:head]}…{name[-(limit - 1 - head) :]}"


def clean_name(name: str, limit: int = 100) -> str:
    """Return a user's name for a terminal or XML: at most `limit` characters, with `?` for unprintable ones."""
    return shorten_middle("".join(letter if letter.isprintable() else "?" for letter in name), limit)


def format_cores(cores: float) -> str:
    """Return a number of usable cores as text, `2.5 usable cores`. The quota of a container may be fractional."""
    return f"{cores:g} usable {'core' if cores == 1 else 'cores'}"


def format_steps(numbers: Iterable[int], limit: int = 6) -> str:
    """Return step numbers as ranges, `1–9, 12`. Steps after `limit` ranges are only counted: `and 30 more`."""
    return format_runs(find_runs(numbers), limit)


def say_cut(steps: Sequence[int], durations_ns: Sequence[int], noun: str) -> str:
    """Return a sentence, after a space, on the steps that a chart cuts off at its top. `steps` has the numbers of these
    steps, which are at least one.
    """
    longest = max(range(len(steps)), key=lambda at: durations_ns[at])
    name, length = f"{noun} {steps[longest]:,}", format_duration(durations_ns[longest])
    if len(steps) == 1:
        return f" {name.capitalize()} leaves the picture: it takes {length}."
    return f" {format_number_of(len(steps), noun).capitalize()} leave the picture, up to {length} ({name})."


def find_runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return first and last number of each range of consecutive numbers, in ascending order."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def format_runs(runs: Sequence[tuple[int, int]], limit: int = 6) -> str:
    """Return ranges, each a first and a last number, as text in the form of `format_steps`."""
    shown = ", ".join(f"{first:,}" if first == last else f"{first:,}–{last:,}" for first, last in runs[:limit])
    left_out = sum(last - first + 1 for first, last in runs[limit:])
    return f"{shown} and {left_out:,} more" if left_out else shown


def _significant(value: float) -> str:
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{min(digits, 2)}f}"


def format_others(ranks: int) -> str:
    return "the other rank" if ranks == 1 else f"{ranks:,} others"


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "share": format_share,
    "duration": format_duration,
    "bytes": format_bytes,
    "count": format_count,
    "cores": format_cores,
    "phase": lambda name: PHASE_LABELS[name].lower(),
    "ranks": format_ranks_named,
    "Ranks": lambda ranks: format_ranks_named(ranks).capitalize(),
    "others": format_others,
    "signal": _name_signal,
    "when": lambda steps: fill_in(
        "after {steps:number of {noun}}" if steps else "before the first {noun}", steps=steps
    ),
}


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("number of "):
            return format_number_of(_count(value), format_spec.removeprefix("number of "))
        if "|" in format_spec:
            one, more = format_spec.split("|")
            return one if _count(value) == 1 else more
        return _FORMATS[format_spec](value) if format_spec in _FORMATS else format(value, format_spec)


_FORMATTER = _Formatter()


def _count(value: int | Sized) -> int:
    return len(value) if isinstance(value, Sized) else value


@cache
def read_texts() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Read the texts below the folder `words`, by name of the folder, name of the entry and name of the text."""
    folders = Path(__file__).with_name("words").glob("*/")
    return {
        path.name: _read_entries("\n".join(one.read_text("utf-8") for one in sorted(path.glob("*.txt"))))
        for path in folders
    }


def _read_entries(texts: str) -> Mapping[str, Mapping[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for entry in re.split(r"^## ", texts, flags=re.MULTILINE)[1:]:
        name, _, body = entry.partition("\n")
        own = dict(re.findall(r"^(\w+):(.*(?:\n(?: {4}.*)?)*)", body, re.MULTILINE))
        found[name] = {key: _read(text) for key, text in own.items()}
    return {name: {**found[name.partition(".")[0]], **own} for name, own in found.items()}


def _read(text: str) -> str:
    """Return a text as it is shown. Lines of code stay as they are, lines of prose are joined into one."""
    return textwrap.dedent(text).strip() if text.startswith("\n") else re.sub(r"\s*\n\s*", " ", text.strip())


_noun: ContextVar[str] = ContextVar("noun of a step", default="step")


def join_names(names: Sequence[str]) -> str:
    """Return names as a list in a sentence: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


@contextmanager
def speak_of(noun: str) -> Iterator[None]:
    """Let texts without a `noun` of their own speak of a run whose steps are called `noun`, while the block runs."""
    token = _noun.set(noun)
    try:
        yield
    finally:
        _noun.reset(token)


def name_work(noun: str) -> Mapping[str, str]:
    """Return the fields that name a step and its work: `{nouns}` is steps, batches or calls, `{epoch}` a pass over the
    data, `{work}` what a step computes, `{fed_work}` that with loading, `{known_work}` with preparation, too.
    """
    nouns = form_plural(noun)
    listed: Mapping[str, tuple[Bound, ...]] = {
        "work": ("compute",),
        "fed_work": ("input", "compute"),
        "known_work": ("input", "transfer", "compute"),
    }
    works = {name: list_work(noun, bounds) for name, bounds in listed.items()}
    epoch, epochs = ("epoch", "epochs") if noun == "step" else ("pass over the data", "passes over the data")
    return {
        "noun": noun,
        "nouns": nouns,
        "Noun": noun.capitalize(),
        "Nouns": nouns.capitalize(),
        "epoch": epoch,
        "Epoch": epoch.capitalize(),
        "epochs": epochs,
        **{name: join_names(work) if len(work) > 1 else f"the {work[0]}" for name, work in works.items()},
        "last_work": f"the {works['work'][-1]}",
    }


def fill_in(text: str, **values: object) -> str:
    """Fill the fields of a text. A run's noun is the `noun` among the values, else that of `speak_of`."""
    return _FORMATTER.vformat(text, (), {**name_work(str(values.get("noun") or _noun.get())), **values})


def say(entry: str, text: str, **values: object) -> str:
    """Return the sentence `text` of `entry`, filled with `values`. A part of it in brackets is left out if one of the
    values in this part is None, 0 or "".
    """
    return "".join(_say_part(part, values) for part in re.split(r"(\[[^]]*\])", read_texts()["sentences"][entry][text]))


def _say_part(part: str, values: Mapping[str, object]) -> str:
    if not part.startswith("["):
        return fill_in(part, **values)
    fields = [field for _, field, _, _ in _FORMATTER.parse(part) if field]
    return fill_in(part[1:-1], **values) if all(_FORMATTER.get_field(field, (), values)[0] for field in fields) else ""


def say_gain(suggestion: object, mean_ns: float | None = None) -> str:
    """Return text on the gain of a suggestion: by the least step time that is possible, else by the predicted one, else
    that neither is known.

    `suggestion` is a Suggestion, or its mapping in `report --json`. `mean_ns` is the present mean step, if it is known.
    """
    fields = suggestion if isinstance(suggestion, Mapping) else vars(suggestion)
    values = {**fields, "mean_ns": mean_ns}
    if values["least_step_ns"]:
        return say("gain", "bound", **values)
    if values["predicted_step_ns"] is None:
        return say("gain", "unknown")
    return say("gain", "assumed" if values["condition"] else "predicted", step=say("gain", "step", **values), **values)


def say_saving(suggestion: object, mean_ns: float | None) -> str:
    """Return text on the part of the mean step `mean_ns` that a suggestion saves; "" if it is not known.

    `suggestion` is a Suggestion. A bound in place of a prediction gives the most that it can save.
    """
    fields = vars(suggestion)
    is_bound = fields["least_step_ns"] is not None
    step_ns = fields["least_step_ns"] if is_bound else fields["predicted_step_ns"]
    if not mean_ns or not step_ns or step_ns >= mean_ns:
        return ""
    saved_ns = mean_ns - step_ns
    entry = "saved_at_most" if is_bound else "saved"
    return say("gain", entry, saved_ns=saved_ns, saved_frac=saved_ns / mean_ns, mean_ns=mean_ns)


def name_kind(fact: object) -> str:
    """Return the name of a fact's type in snake case, for texts and reports: `left_out` for LeftOut."""
    return re.sub(r"\B([A-Z])", r"_\1", type(fact).__name__).lower()
