"""The options of a Profiler: their types, their defaults, and their checks, which run before any recording."""

from __future__ import annotations

import dataclasses
import enum
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from collector.format.schema.errors import OptionError
from collector.format.schema.wording import suggest_nearest
from collector.trackers import LogTo, list_names, takes

Level = Literal["debug", "info", "important"]
Activity = Literal["cpu", "device"]
LEVELS: tuple[Level, ...] = ("debug", "info", "important")
ACTIVITIES: tuple[Activity, ...] = ("cpu", "device")
_IMPORTANT = {
    "window": None,
    "data_pipeline": False,
    "memory": False,
    "resources": False,
    "stacks": False,
    "triggers": False,
}
"""The defaults under `level="important"` where they differ from `Options`."""


class Default(enum.Enum):
    """The mark of a default that depends on `level`. None cannot be the mark, because None switches the window off."""

    BY_LEVEL = "by level"

    def __repr__(self) -> str:
        return self.value


BY_LEVEL = Default.BY_LEVEL


@dataclass(frozen=True)
class WindowOption:
    """The steps of the detailed window: `count` steps from step `first`. `count` 0 means no window at a given step."""

    first: int = 10
    count: int = 3

    @property
    def is_off(self) -> bool:
        return self.count == 0


WindowValue = Literal["auto"] | bool | tuple[int, int] | list[int] | Mapping[str, int] | WindowOption | None
"""The values that the option `window` accepts; see `parse_window`."""
ActivitiesValue = Activity | Collection[Activity]


@dataclass(frozen=True)
class Options:
    """The options of a recording. `level` sets how much is recorded: important (steps, and everything switched on by
    name), info, or debug (call stacks and modules in windows too). `baseline` is the path of the run that this run
    tries to improve, "" for none. `log_to` is "" for no tracker. `Profiler` documents the others."""

    window: WindowOption = WindowOption()
    data_pipeline: bool = True
    memory: bool = True
    resources: bool = True
    stacks: bool = True
    triggers: bool = True
    level: Level = "info"
    activities: tuple[Activity, ...] = ACTIVITIES
    keep_events: bool = False
    baseline: str = ""
    log_to: LogTo = ""

    def is_on(self, option: str) -> bool:
        """Return whether the option with this name is on. An empty or unknown name counts as on."""
        if not option:
            return True
        value = getattr(self, option, True)
        return not value.is_off if isinstance(value, WindowOption) else bool(value)

    def name_tracker(self) -> str:
        """Return the name of the tracker, "" for none. A tracker of the user's own has the name of its type."""
        return self.log_to if isinstance(self.log_to, str) else type(self.log_to).__name__

    def as_dict(self) -> dict[str, Any]:
        """Return the options by name, as values for JSON."""
        return dataclasses.asdict(dataclasses.replace(self, log_to=self.name_tracker()))


def parse_options(given: Mapping[str, Any]) -> Options:
    """Check options, given by name, and return them all; an option that is BY_LEVEL or missing gets its default.

    OptionError names the option and the nearest real name, or the values that the option takes.
    """
    given = {name: value for name, value in given.items() if value is not BY_LEVEL}
    names = [field.name for field in dataclasses.fields(Options)]
    for name in given:
        if name not in names:
            hint = suggest_nearest(name, names, f"it has: {', '.join(names)}", 0.5)
            raise OptionError(f"Profiler has no option {name!r}; {hint}")
    values = dict(given)
    if values.get("level") == "important":
        values = {**_IMPORTANT, **values}
    for name in ("data_pipeline", "memory", "resources", "stacks", "triggers", "keep_events"):
        if name in values and not isinstance(values[name], bool):
            raise OptionError(f"{name} takes True or False, not {values[name]!r}")
    if "level" in values and values["level"] not in LEVELS:
        raise OptionError(f"level takes one of {', '.join(LEVELS)}, not {values['level']!r}")
    if "activities" in values:
        values["activities"] = _parse_activities(values["activities"])
    if "baseline" in values:
        values["baseline"] = _parse_baseline(values["baseline"])
    if "window" in values:
        values["window"] = parse_window(values["window"])
    if "log_to" in values and values["log_to"] != "" and not takes(values["log_to"]):
        known = ", ".join(f'"{name}"' for name in list_names())
        raise OptionError(f"log_to takes {known}, a SummaryWriter or a function, not {values['log_to']!r}")
    return Options(**values)


def parse_window(value: Any) -> WindowOption:
    """Return the option `window`. "auto" and True mean the usual window, None and False none. Other values are
    (first, count) and {"first": …, "count": …}. Raises OptionError."""
    if value == "auto" or value is True:
        return WindowOption()
    if value is None or value is False:
        return WindowOption(count=0)
    if isinstance(value, WindowOption):
        return value
    if isinstance(value, Mapping) and set(value) <= {"first", "count"}:
        value = (value.get("first", WindowOption.first), value.get("count", WindowOption.count))
    if isinstance(value, (tuple, list)) and len(value) == 2 and all(_is_count(item) for item in value):
        first, count = value
        return WindowOption(max(first, 1), count)
    raise OptionError(
        f'window takes "auto", None, (first step, number of steps) or {{"first": …, "count": …}}, not {value!r}'
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _parse_activities(value: Any) -> tuple[Activity, ...]:
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, (tuple, list, set)) or not items or not all(item in ACTIVITIES for item in items):
        raise OptionError(f"activities takes some of {', '.join(ACTIVITIES)}, not {value!r}")
    return tuple(name for name in ACTIVITIES if name in items)


def _parse_baseline(value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise OptionError(f"baseline takes the path of a run, not {value!r}")
    path = os.fsdecode(value)
    return os.path.abspath(os.path.expanduser(path)) if path else ""
