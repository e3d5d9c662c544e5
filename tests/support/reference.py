"""Make the pages of docs/reference that are made from code: `python -m tests.support.reference`."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import string
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer

from collector import Profiler
from collector.format.schema import errors
from collector.launch.command import _add_options
from collector.options import _IMPORTANT, Default, Options
from profiler_server import cli
from profiler_server.diagnosis.judging import find_rules
from profiler_server.diagnosis.limits import list_limits
from profiler_server.facts.case import Rule
from profiler_server.format import fill_in, name_work, read_texts
from tests.support.api_document import build_reference
from tests.support.format_document import build_document

ROOT = Path(__file__).parents[2]
_NOTE = "This page is made from the code (`python -m tests.support.reference`); a test fails when it is stale.\n"
_OPTIONS = """# Options

{note}
## `Profiler`

`Profiler(output_path, option=value, …)`, or as JSON in `stepscope run --options` and `PROFILER_OPTIONS`. The column
“important” holds the default under `level="important"`, where it differs. [Record a training](../how-to/record.md) has
the variables of the environment.

| option | takes | default | important | meaning |
|---|---|---|---|---|
"""
_RULES = """# Rules

{note}
A rule looks for one cause in the facts of a rank. `report --json` names it by its id. Below each one stands what it
reads, as its suggestion says it, and its threshold; … is a figure or a name of the run. A suggestion also needs a gain
that stands out ([how rules decide](../concepts/diagnosis.md#how-rules-decide)). How often the advice is right was
measured on programs of people who know no rule ([how often they are
right](../concepts/diagnosis.md#how-often-they-are-right)), for all rules together: most rules spoke in too few of these
programs for a figure of their own.

{count} rules:

"""
_ERRORS = """# Error messages

{note}
Each error that is raised on purpose is a `StepscopeError` with one line: what, where, what to do. A command prints that
line and ends with exit code 2. … is a value, a path or a name.

```
{tree}
```
"""


def build_options() -> str:
    """Return the options of Profiler and of all commands, with types, defaults and meanings."""
    lines = [_OPTIONS.format(note=_NOTE), *_list_profiler_options(), "", *_describe_run(), *_describe_server()]
    return "\n".join(lines).replace("\n\n\n", "\n\n").replace("|\n\n|", "|\n|") + "\n"


def _list_profiler_options() -> Iterator[str]:
    text = re.sub(r"\n {4,}", " ", inspect.cleandoc(Profiler.__doc__ or ""))
    meanings = dict(re.findall(r"^([a-z_]+): (.*)$", text, re.MULTILINE))
    defaults = Options().as_dict()
    for name, parameter in inspect.signature(Profiler).parameters.items():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        is_by_level = isinstance(parameter.default, Default)
        default = defaults[name] if is_by_level else parameter.default
        shown = '"auto"' if name == "window" else repr(list(default)) if isinstance(default, tuple) else repr(default)
        other = f"`{_IMPORTANT[name]!r}`" if is_by_level and name in _IMPORTANT else ""
        meaning = meanings.get(name, "whether recording begins at once; else it begins at `start()`.")
        yield f"| `{name}` | {_TAKES[name]} | `{shown}` | {other} | {meaning} |"


_TAKES = {
    "window": '"auto", None, (first, count)',
    "level": '"info", "important", "debug"',
    "activities": '"cpu", "device", both',
    "baseline": "path",
    "log_to": "tracker, function, SummaryWriter",
    **dict.fromkeys(
        ("start_profile", "data_pipeline", "memory", "resources", "stacks", "triggers", "keep_events"), "bool"
    ),
}


def _describe_run() -> Iterator[str]:
    parser = argparse.ArgumentParser()
    _add_options(parser)
    yield "## `stepscope run`\n\nOptions stand before the script.\n"
    yield "| option | meaning |\n|---|---|"
    for action in parser._actions[1:]:
        value = f" {action.metavar}" if action.nargs != 0 else ""
        yield f"| `{', '.join(action.option_strings)}{value}` | {action.help} |"
    yield ""


def _describe_server() -> Iterator[str]:
    if not cli.app.registered_commands:
        cli.register_commands()
    group: Any = typer.main.get_command(cli.app)
    yield from _describe_command("stepscope serve", group)
    for name, command in group.commands.items():
        if not command.hidden and name not in cli.SHORT:
            yield from _describe_command(f"stepscope {name}", command)


def _describe_command(name: str, command: Any) -> Iterator[str]:
    words = [param.metavar or param.name.upper() for param in command.params if param.param_type_name == "argument"]
    yield f"\n## `{name}`\n\n{' '.join((command.help or '').split())}\n"
    if words:
        yield f"Arguments: `{' '.join(words)}`.\n"
    options = [param for param in command.params if param.param_type_name == "option" and not param.hidden]
    options = [param for param in options if not param.name.endswith("_completion")]
    if options:
        yield "| option | default | meaning |\n|---|---|---|"
    for param in options:
        value = "" if param.is_flag or not param.metavar else f" {param.metavar}"
        given = [*param.opts, *param.secondary_opts]
        default = "" if param.default is None or callable(param.default) or param.is_flag else param.default
        shown = f"`{default}`" if default not in ("", [], ()) and "UNSET" not in repr(default).upper() else ""
        yield f"| `{' '.join(sorted(given))}{value}` | {shown} | {' '.join((param.help or '').split())} |"


def build_rules() -> str:
    """Return the rules in the order of their ids, with their texts; figures of the run are left out."""
    rules = find_rules().rules
    return "\n".join([_RULES.format(note=_NOTE, count=len(rules)), *(_describe_rule(rule) for rule in rules)])


def read_about(rule: Rule) -> str:
    """Return the sentence beside a rule: the first one of what judges it, or of its file."""
    text = rule.about or rule.judge.__doc__ or import_module(rule.judge.__module__).__doc__ or ""
    return text.strip().partition("\n")[0]


def _describe_rule(rule: Rule) -> str:
    texts = read_texts()["texts"]
    cases = [texts[name] for name in texts if name.partition(".")[0] == rule.id or name == f"window.{rule.id}"]
    kinds = {"Reads": "measured", "Threshold": "threshold"}
    lines = [f"## `{rule.id}`\n\n{read_about(rule)}\n"]
    for label, key in kinds.items():
        said = dict.fromkeys(_leave_out_figures(case[key]) for case in cases if key in case)
        if len(said) == 1:
            lines.append(f"- {label}: {next(iter(said))}")
        elif said:
            lines += [f"- {label}, by case:", *(f"    - {text}" for text in said)]
    return "\n".join([*lines, ""])


def _leave_out_figures(text: str) -> str:
    parts, known, limits = [], name_work("step"), SimpleNamespace(**list_limits())
    for literal, field, spec, _ in string.Formatter().parse(" ".join(text.split())):
        parts.append(literal)
        if field in known or str(field).startswith("limits."):
            parts.append(fill_in(f"{{{field}:{spec}}}", limits=limits))
        elif field is not None:
            parts.append("…")
    # A fact that is a sentence of its own is no more than its place here.
    return re.sub(r"^… (?=[A-Z…])", "", re.sub(r"…(?:…|\s…)*", "…", "".join(parts))).replace("|", "\\|")


def build_errors() -> str:
    """Return the messages of all errors of ours that the code raises, by kind."""
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and name.endswith("Error")}
    found: dict[str, set[str]] = {}
    for package in ("collector", "profiler_server", "stepscope"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for name, text in _list_messages(ast.parse(path.read_text("utf-8"))):
                if name in kinds:
                    found.setdefault(name, set()).add(text)
    tree = inspect.cleandoc(errors.__doc__ or "").partition("\n\n")[2]
    sections = [
        "\n".join([f"## {name}\n", *(f"- {text}" for text in sorted(found[name], key=str.casefold)), ""])
        for name in re.findall(r"\w+Error", tree)
        if name in found
    ]
    return "\n".join([_ERRORS.format(note=_NOTE, tree=tree), *sections])


def _list_messages(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        call = node.exc if isinstance(node, ast.Raise) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args:
            text = _read_message(call.args[0])
            # A message that is made elsewhere has no words here.
            if len(re.findall(r"\w+", text)) > 2:
                yield call.func.id, text


def _read_message(node: ast.expr) -> str:
    """Return a message with … for each value. A text with a choice gives its first form."""
    if isinstance(node, ast.Constant):
        return " ".join(str(node.value).replace("<", "&lt;").replace("*", "\\*").split(" "))
    if isinstance(node, ast.JoinedStr):
        return "".join("…" if isinstance(part, ast.FormattedValue) else _read_message(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _read_message(node.left) + _read_message(node.right)
    return _read_message(node.body) if isinstance(node, ast.IfExp) else "…"


PAGES: Mapping[str, Callable[[], str]] = {
    "api.md": build_reference,
    "format.md": build_document,
    "options.md": build_options,
    "rules.md": build_rules,
    "errors.md": build_errors,
}

if __name__ == "__main__":
    for page, build in PAGES.items():
        (ROOT / "docs/reference" / page).write_text(build(), encoding="utf-8")
