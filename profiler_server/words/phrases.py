"""The texts of advice, sentences that several rules share, and how texts name a function.

The texts of a rule are in `texts/*.txt`, with an entry for the rule and one for each of its cases: `drift`,
`worker_restart.remade`. A field in a text is a figure of the rule, a fact of the rank (`case`) or a limit.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from profiler_server.diagnosis.limits import list_limits
from profiler_server.diagnosis.limits.facts import CAPPED_NEED, INPUT_WAIT_FRAC, NAMED_FRAC
from profiler_server.facts.case import Case, Evidence, Text
from profiler_server.facts.loading import LoaderArguments
from profiler_server.facts.steps import NamedFunction, Part, read_column
from profiler_server.format import fill_in, format_duration, format_sampled, format_share, read_texts

DATA_PAGE = Evidence("data", "tab=interval", "Queue depth and wait per step")
STAGES_PAGE = Evidence("data", "tab=processing", "Work and wait of each stage")
OPERATORS_PAGE = Evidence("operators", "", "Operators of the detailed window")
FUNCTIONS = Evidence("steps", "", "The functions of each phase")
_MOST_SAID = 2


def describe(case: Case, entry: str, **given: object) -> Text:
    """Return title, advice and so on of an entry in `texts`. Placeholders get facts, limits or values of `given`."""
    steps = case.steps
    values = {
        "case": case,
        "limits": SimpleNamespace(**list_limits()),
        "step_ns": steps.mean_ns,
        "loading": case.loading,
        "loader": case.loading.loader,
        "reading": case.loading.reading,
        "load": case.host.load,
        "noun": steps.noun,
        "wait": say_wait(case),
        "input_limit": say_input_limit(case),
        **given,
    }
    return Text(**{name: fill_in(text, **values) for name, text in read_texts()["texts"][entry].items()})


def write_loader(loader: LoaderArguments, **changes: Any) -> str:
    """Return code, ready to copy, that calls the DataLoader with the run's arguments, some of them changed."""
    now: dict[str, Any] = {
        "batch_size": loader.batch_size,
        "shuffle": loader.shuffle,
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": loader.pin_memory or None,
        "persistent_workers": loader.persistent_workers or None,
        "in_order": None if loader.in_order else False,
    }
    lines = [f"    dataset,  # {loader.dataset}"]
    for name, value in now.items():
        if name in changes:
            shown = "default" if value is None else value
            lines.append(f"    {name}={changes[name]!r},  # was {shown}")
        elif value is not None:
            lines.append(f"    {name}={value!r},")
    return "\n".join(["DataLoader(", *lines, "    # your other arguments as they are", ")"])


def say_wait(case: Case) -> str:
    """Return the sentence on the data wait of the mean step. Most rules on loading use it, and every page shows it."""
    of_loader = f"batches of {case.loading.name}" if case.other_loadings else "data"
    wait_ns, step_ns = case.data_wait_ns, case.steps.mean_ns
    share = format_share(wait_ns / step_ns)
    return f"The {case.steps.noun} waits {format_duration(wait_ns)} of {format_duration(step_ns)} ({share}) for {of_loader}."


def say_many_workers(case: Case, workers: int) -> str:
    """Return a sentence on why more workers than cores are right here; "" if `workers` are not more. It begins with a
    space, to follow another sentence.
    """
    if case.is_imported or workers <= case.host.cores or case.loading.cpu_need > CAPPED_NEED:
        return ""
    return (
        " More workers than cores are right here: they wait rather than compute. "
        "A warning of PyTorch about their number can be ignored."
    )


def say_ready(case: Case) -> str:
    """Return a clause on the share of requests whose batch the workers had finished before it was asked for.

    If this share is unknown, the clause is on the share of requests that found the next batch ready in the queue.
    """
    made_frac = case.loading.bottleneck.made_frac
    if made_frac is not None:
        return (
            f"the workers had finished the batch before it was asked for in {format_share(made_frac)} of the requests"
        )
    return f"the next batch is ready in {format_share(1.0 - case.loading.not_ready_frac)} of the requests"


def acts_in_steps(case: Case) -> bool:
    """Return whether the usual step calls a model without gradients, and some steps also call one with gradients, as in
    reinforcement learning.
    """
    rows, regular = case.steps.rows, case.steps.selection.regular
    if not regular.any():
        return False
    forwards, acting = (read_column(rows, name)[regular] for name in ("forwards", "no_grad_forwards"))
    return float(np.median(acting)) >= 1.0 and bool((forwards > acting).any())


def say_input_limit(case: Case) -> str:
    """Return the start of a sentence: the share of data wait above which rules on loading look for a cause."""
    return f"More than {format_share(INPUT_WAIT_FRAC)} of the {case.steps.noun} waits for data"


def find_in_phases(case: Case, *phases: str) -> Part | None:
    """Return the functions that ran in any of `phases` on the training thread, together; None without stacks."""
    return case.stacks.phases[phases] if case.stacks is not None else None


def find_in_stage(case: Case, stage: str) -> Part | None:
    """Return the functions that ran in a stage of the loader that the steps wait for; None without stacks or loader."""
    if case.stacks is None or case.loading.loader is None:
        return None
    found = case.stacks.stages[(stage,)]
    if found.functions or stage != "read" or case.loading.transforms:
        return found
    return case.stacks.stages[("read", "fetch")]  # there is nothing else that it could be


def find_dominant(part: Part | None) -> NamedFunction | None:
    return part.dominant if part is not None else None


def say_functions(part: Part | None, whole: str) -> str:
    """Return a sentence on the functions that take most of `whole`; "" if none is named. It begins with a space."""
    said = [entry for entry in (part.functions if part is not None else ())[:_MOST_SAID] if _is_worth_saying(entry)]
    if not said:
        return ""
    assert part is not None
    first, *others = said
    text = f"{spell_function(first)} is {spell_share(first)} of {whole}"
    text += "".join(f", {spell_function(entry)} {spell_share(entry)}" for entry in others)
    return f" {text} ({part.samples:,} samples)."


def _is_worth_saying(entry: NamedFunction) -> bool:
    return entry.share_frac >= NAMED_FRAC


def name_call(entry: NamedFunction) -> str:
    """Return the name of a function for a title or for advice. If only a line of code is known, name the line."""
    return f"what {entry.place} does" if entry.is_own_line else spell_call(entry)


def name_parts(entry: NamedFunction) -> dict[str, object]:
    """Return the fields that texts use for a function: its name in a sentence, its call as code, and its place."""
    call = name_call(entry)
    return {
        "call": call,
        "code": "…" if entry.is_own_line else call,
        "function": spell_function(entry),
        "place": entry.place,
    }


def spell_call(entry: NamedFunction) -> str:
    """Return the call of a function, `accuracy()`. A name that is a script's, or has brackets, stays as it is."""
    return entry.function if entry.function.endswith((".py", ")")) else f"{entry.function}()"


def spell_function(entry: NamedFunction) -> str:
    """Return a function with its place in the code: `accuracy() at train.py:88`."""
    if entry.is_own_line:
        return f"{entry.function} itself at {entry.place}"
    if entry.caller:
        return f"{spell_call(entry)} called in {entry.caller} ({entry.place})"
    return f"{spell_call(entry)} at {entry.place}"


def spell_share(entry: NamedFunction) -> str:
    """Return the share of samples in a function, with the error of counting: `61 ± 9 %`."""
    return format_sampled(entry.share_frac, entry.error_frac)
