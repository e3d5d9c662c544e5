"""Put a program together: its arguments, definitions and `main`, with the imports that they use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.zoo.draw.feeds import Feed, build_feed, fill_feed
from tests.zoo.draw.loops import Loop, Steps, indent, list_styles, write_loop
from tests.zoo.draw.parts import Plan, Work

_IMPORTS = {
    "argparse": "import argparse",
    "csv": "import csv",
    "datetime": "import datetime",
    "functools": "import functools",
    "gc": "import gc",
    "gzip": "import gzip",
    "itertools": "import itertools",
    "json": "import json",
    "math": "import math",
    "os": "import os",
    "pickle": "import pickle",
    "random": "import random",
    "re": "import re",
    "struct": "import struct",
    "tempfile": "import tempfile",
    "time": "import time",
    "wave": "import wave",
}
_OTHERS = {
    "np": "import numpy as np",
    "torch": "import torch",
    "F": "import torch.nn.functional as F",
}
_FROM = {
    "PIL": ("Image", "ImageEnhance", "ImageFilter"),
    "torch": ("nn",),
    "torch.nn.utils.rnn": ("pad_sequence",),
    "torch.utils.data": (
        "BatchSampler",
        "DataLoader",
        "Dataset",
        "IterableDataset",
        "RandomSampler",
        "Sampler",
        "TensorDataset",
        "default_collate",
        "get_worker_info",
    ),
    "tqdm": ("tqdm",),
}
_OPTIONS = """
    parser.add_argument("--num-workers", type=int)
    parser.add_argument("--prefetch-factor", type=int)
    parser.add_argument("--any-order", action="store_true", help="take batches as they come")
    parser.add_argument("--keep-workers", action="store_true", help="keep workers between epochs")"""

_LOADER_OPTIONS = """
def loader_options():
    options = $options
    given = {"num_workers": args.num_workers, "prefetch_factor": args.prefetch_factor}
    options.update({name: value for name, value in given.items() if value is not None})
    if args.any_order:
        options["in_order"] = False
    if args.keep_workers:
        options["persistent_workers"] = True
    if not options["num_workers"]:
        options = {"num_workers": 0}
    return options
"""

OPTIMIZERS = (
    "torch.optim.AdamW(model.parameters(), 1e-3, $how)",
    "torch.optim.Adam(model.parameters(), 1e-3, $how)",
    "torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9, $how)",
)


@dataclass(frozen=True)
class Recipe:
    """Everything that is chosen for one program."""

    work: Work
    plan: Plan
    feed: str
    style: str
    about: str
    optimizer: str
    seed: int
    extra: str = ""


def write_program(recipe: Recipe) -> str:
    """Return the text of a program."""
    work, plan = recipe.work, recipe.plan
    if recipe.style == "accumulate":  # two batches make an update
        plan = replace(plan, steps=plan.steps * 3 // 2)
    feed = build_feed(recipe.feed, work, plan)
    loop = write_loop(recipe.style, build_steps(recipe, feed))
    definitions = [
        _write_arguments(plan, feed) + "\n" + _write_constants(work, plan),
        *write_sample(recipe, feed),
        _fill_model(work, plan, work.calls + (recipe.feed == "pair")),
        plan.data.get("definitions", ""),
        fill_feed(plan.data.get("dataset", feed.definitions), recipe.feed, work, _find_reach(plan)),
        _fill_options(plan) if feed.takes_options else "",
        plan.helpers,
        loop.definitions,
        _write_main(recipe, feed, loop),
        'if __name__ == "__main__":\n    main()',
    ]
    body = "\n\n\n".join(text.strip("\n") for text in definitions if text.strip())
    text = f'"""{recipe.about}"""\n\n{write_imports(body)}\n\n\n{body}\n'
    return re.sub(r"\n{4,}", "\n\n\n", text)


def list_loops(recipe: Recipe) -> tuple[str, ...]:
    """Return the styles of loops that fit what was chosen so far."""
    return list_styles(build_steps(recipe, build_feed(recipe.feed, recipe.work, recipe.plan)))


def build_steps(recipe: Recipe, feed: Feed) -> Steps:
    work, plan = recipe.work, recipe.plan
    casts = [f"{name} = {name}.to(torch.get_default_dtype())" for name in work.floats] if plan.dtype else []
    casts += [plan.data["first"]] if "first" in plan.data else []
    extra = [work.extra] if recipe.feed == "pair" else []
    loss = "\n".join([*casts, *([work.loss] if work.loss else []), *extra])
    clip = [recipe.extra] if recipe.extra else []
    usual = "\n".join([loss, "optimizer.zero_grad()", "loss.backward()", *clip, "optimizer.step()"])
    own = "\n".join([*casts, work.step])
    report = f"if step % {25 if plan.steps >= 50 else 10} == 0:\n    print(step, round(loss.item(), 4))"
    after = "\n".join(part for part in (plan.after, report) if part).replace("$forward", work.forward)
    after = after.replace("$unpack", work.unpack)
    return Steps(
        unpack=plan.data.get("unpack", feed.unpack),
        update=own if work.step else usual,
        loss="" if work.step or plan.dtype or plan.data else loss,
        before=plan.before,
        after=after,
        players=tuple(work.players),
        epochs=plan.epochs,
        is_world=recipe.feed == "world",
    )


def _write_arguments(plan: Plan, feed: Feed) -> str:
    threads = '\n    parser.add_argument("--threads", type=int)' if "args.threads" in plan.threads else ""
    return (
        "def read_arguments():\n    parser = argparse.ArgumentParser()\n"
        f'    parser.add_argument("--steps", type=int, default={plan.steps})\n'
        '    parser.add_argument("--fixed", action="store_true")'
        f"{_OPTIONS if feed.takes_options else ''}{threads}\n    return parser.parse_args()\n\n\n"
        "args = read_arguments()\nSTEPS = args.steps"
    )


def _write_constants(work: Work, plan: Plan) -> str:
    own = work.constants.replace("$batch", plan.data.get("batch", str(work.batch)))
    return own + f"\nEPOCHS = {plan.epochs if plan.epochs == 1 else f'min({plan.epochs}, STEPS)'}"


def write_sample(recipe: Recipe, feed: Feed) -> list[str]:
    """Return prepare, load, transform and collate; the one that is written twice has the second way beside it."""
    work, plan = recipe.work, recipe.plan
    if recipe.feed == "world":
        return [_write_swap(work, plan, "world")]
    if feed.uses_tensors:
        return []
    load = plan.data.get("load") or (_write_swap(work, plan, "load") if plan.swap == "load" else work.load)
    transform = _write_swap(work, plan, "transform") if plan.swap == "transform" else work.transform
    collate = _write_swap(work, plan, "collate") if plan.swap == "collate" else work.collate
    has_prepare = "def prepare(" in load
    return ["" if has_prepare else plan.data.get("prepare", work.prepare), load, transform, collate]


def _write_swap(work: Work, plan: Plan, part: str) -> str:
    swap = work.swaps[part]
    if plan.swap != part:
        return swap.fixed
    if plan.swap_both:
        return swap.base
    return write_both(swap.base, swap.fixed)


def write_both(base: str, fixed: str) -> str:
    """Write a piece both ways; the second way takes the names of the first in the fixed form of the program."""
    names = [name for name in re.findall(r"^(?:def|class) (\w+)", fixed, re.M) if re.search(rf"\b{name}\b", base)]
    for name in names:
        anew = f"{name}Anew" if name[0].isupper() else f"{name}_anew"
        fixed = re.sub(rf"(?<![.\w]){name}\b(?!=)", anew, fixed)
    swaps = "\n".join(f"    {name} = {name}{'Anew' if name[0].isupper() else '_anew'}" for name in names)
    return f"{base.strip()}\n\n\n{fixed.strip()}\n\n\nif args.fixed:\n{swaps}"


def _fill_model(work: Work, plan: Plan, calls: int) -> str:
    width, depth = work.sizes[plan.size]
    text = work.model.replace("$width", str(width)).replace("$depth", str(depth))
    if plan.pause_ms:
        return text.replace(
            "$pause", f"time.sleep({plan.pause_ms / 1000 / calls:.4g})  # as long as an accelerator would take"
        )
    return "\n".join(line for line in text.split("\n") if line.strip() != "$pause")


def _find_reach(plan: Plan) -> str:
    if not plan.reach or plan.reach_both:
        return plan.reach
    return "if not args.fixed:\n    " + plan.reach.replace("\n", "\n    ")


def _fill_options(plan: Plan) -> str:
    base = {"num_workers": 0, **plan.loading}
    fixed = plan.loading_fixed or {}
    changed = {name: value for name, value in fixed.items() if base.get(name) != value}
    more = f"\n    if args.fixed:\n        options |= {_say_options(changed)}" if changed else ""
    return _LOADER_OPTIONS.replace("$options", _say_options(base) + more)


def _say_options(shown: Mapping[str, object]) -> str:
    values = (f'"{name}": {value if name == "worker_init_fn" else repr(value)}' for name, value in shown.items())
    return "{" + ", ".join(values) + "}"


def _write_main(recipe: Recipe, feed: Feed, loop: Loop) -> str:
    work, plan = recipe.work, recipe.plan
    lines = [f"torch.manual_seed({recipe.seed})"]
    lines += [f"torch.set_num_threads({plan.threads})"] if plan.threads else []
    lines += [plan.setup] if plan.setup else []
    feeding = plan.data.get("loader", feed.lines).replace("$sampler", plan.data.get("sampler", ""))
    feeding = _collate(feeding, recipe)
    needs_files = "where" in feeding or "where" in loop.lines or "where" in loop.definitions
    inner = ["prepare(where)"] if not feed.uses_tensors and recipe.feed != "world" else []
    inner += [feeding] if feeding else []
    inner += [f"how = {plan.optimizer_fixed} if args.fixed else {plan.optimizer}"] if plan.optimizer_fixed else []
    inner += [
        f"{name} = {value}".replace("$optimizer", _write_optimizer(recipe)) for name, value in work.players.items()
    ]
    inner += [plan.data["wrap"]] if "wrap" in plan.data else []
    inner += ["began = time.perf_counter()", loop.lines]
    inner += ['print(f"{step} updates, {time.perf_counter() - began:.3f} s, loss {loss.item():.4f}")']
    if needs_files:
        lines += ["with tempfile.TemporaryDirectory() as where:\n" + indent("\n".join(inner))]
    else:
        lines += inner
    return "def main():\n" + indent("\n".join(lines))


def _collate(feeding: str, recipe: Recipe) -> str:
    name = recipe.plan.data.get("collate", "")
    if not name:
        return feeding
    if "collate_fn=" in feeding:
        return re.sub(r"collate_fn=\w+", f"collate_fn={name}", feeding)
    return feeding.replace(", **options", f", collate_fn={name}, **options")


def _write_optimizer(recipe: Recipe) -> str:
    plan = recipe.plan
    if not plan.optimizer_fixed:
        return recipe.optimizer.replace(", $how", f", {plan.optimizer}" if plan.optimizer else "")
    return recipe.optimizer.replace("$how", "**how")


def write_imports(body: str) -> str:
    """Return the imports of what a text uses."""
    code = re.sub(r'"""[\s\S]*?"""', "", body)

    def uses(name: str) -> bool:
        return re.search(rf"(?<![\w.\"]){name}\b(?=[.(,)\]])", code) is not None

    plain = [line for name, line in _IMPORTS.items() if re.search(rf"(?<![\w.\"]){name}\.", code)]
    other = [line for name, line in _OTHERS.items() if re.search(rf"(?<![\w.]){name}\.", code)]
    named = []
    for module, names in _FROM.items():
        used = [name for name in names if (re.search(r"\bnn\.", code) if name == "nn" else uses(name))]
        named += [f"from {module} import {', '.join(used)}"] if used else []
    others = sorted([*other, *named], key=lambda line: line.split()[1].lower())
    return "\n".join([*plain, "", *others])
