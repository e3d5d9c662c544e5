"""Styles of loops: how the same update and what follows it are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

_USUAL = ("plain", "enumerate", "iterator", "function", "trainer", "closure", "progress")


@dataclass(frozen=True)
class Steps:
    """What a loop does. `update` computes loss and output and updates, `loss` is that alone (for accumulation)."""

    unpack: str
    update: str
    loss: str
    before: str
    after: str
    players: Sequence[str]
    epochs: int
    is_world: bool = False


@dataclass(frozen=True)
class Loop:
    definitions: str
    lines: str


def list_styles(steps: Steps) -> tuple[str, ...]:
    """Return the styles that these steps can be written in."""
    styles = tuple(style for style in _USUAL if steps.epochs == 1 or style not in ("iterator", "progress"))
    if steps.is_world:
        return ("plain", "function", "trainer")
    return (*styles, "accumulate") if steps.loss and steps.epochs == 1 else styles


def write_loop(style: str, steps: Steps) -> Loop:
    """Write a loop. Its lines set `step`, the number of updates, and `loss`."""
    if style == "function":
        return _write_function(steps)
    if style == "trainer":
        return _write_trainer(steps)
    if style == "closure":
        return _write_closure(steps)
    return Loop("", _join(steps.before, _write_plain(style, steps)))


def _write_plain(style: str, steps: Steps) -> str:
    body = _join(steps.update, "step += 1", steps.after)
    if steps.is_world:
        return "step = 0\nwhile step < STEPS:\n" + indent(body)
    if style == "enumerate" and steps.epochs == 1:
        return f"for step, ({steps.unpack}) in enumerate(loader, 1):\n" + indent(_join(steps.update, steps.after))
    if style == "iterator":
        return "loader = iter(loader)\nfor step in range(1, STEPS + 1):\n" + indent(
            _join(f"{steps.unpack} = next(loader)", steps.update, steps.after)
        )
    if style == "progress":
        return f"step = 0\nfor {steps.unpack} in tqdm(loader, total=STEPS, mininterval=1):\n" + indent(body)
    if style == "accumulate":
        half = _join(steps.loss, "(loss / 2).backward()", "count += 1")
        tail = _join("optimizer.step()", "optimizer.zero_grad()", "step += 1", steps.after)
        both = half + "\nif count % 2 == 0:\n" + indent(tail)
        return f"count = step = 0\nfor {steps.unpack} in loader:\n" + indent(both)
    inner = f"for {steps.unpack} in loader:\n" + indent(body)
    if steps.epochs == 1:
        return "step = 0\n" + inner
    return "step = 0\nfor epoch in range(EPOCHS):\n" + indent(inner)


def _write_function(steps: Steps) -> Loop:
    names = [*steps.players, "where"] if steps.is_world else [*steps.players, "loader", "where"]
    body = _join(steps.before, _write_plain("plain", steps), "return step, loss")
    call = f"step, loss = train({', '.join(names)})"
    return Loop(f"def train({', '.join(names)}):\n" + indent(body), call)


def _write_trainer(steps: Steps) -> Loop:
    players = list(steps.players)
    keep = [f"self.{name} = {name}" for name in players]
    update = re.sub(rf"\b({'|'.join(players)})\b(?!=)", r"self.\1", steps.update)
    taken = "" if steps.is_world else f", {steps.unpack}"
    taken = taken.replace("(", "").replace(")", "")
    call = "loss, output = self.update(" + taken.removeprefix(", ") + ")"
    plain = _write_plain("plain", _replace_update(steps, call))
    used = steps.before + steps.after
    needed = [f"{name} = self.{name}" for name in players if re.search(rf"\b{name}\b", used)]
    fit = _join(*needed, steps.before, plain, "return step, loss")
    fed = "where" if steps.is_world else "loader, where"
    text = (
        f"class Trainer:\n    def __init__(self, {', '.join(players)}):\n{indent(_join(*keep), 8)}\n\n"
        f"    def update(self{taken}):\n{indent(_join(update, 'return loss, output'), 8)}\n\n"
        f"    def fit(self, {fed}):\n{indent(fit, 8)}"
    )
    return Loop(text, f"step, loss = Trainer({', '.join(players)}).fit({fed})")


def _write_closure(steps: Steps) -> Loop:
    taken = steps.unpack.replace("(", "").replace(")", "")
    update = f"def update({taken}):\n" + indent(_join(steps.update, "return loss, output")) + "\n"
    plain = _write_plain("plain", _replace_update(steps, f"loss, output = update({taken})"))
    return Loop("", _join(steps.before, update, plain))


def _replace_update(steps: Steps, update: str) -> Steps:
    return replace(steps, update=update, loss="", before="")


def indent(text: str, by: int = 4) -> str:
    return "\n".join(" " * by + line if line.strip() else "" for line in text.split("\n"))


def _join(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
