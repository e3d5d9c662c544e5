"""Build the paths of the files of a run: no other module defines their names.

<output_path>/profiler/run.json
<output_path>/profiler/control.json                     orders for the run while it records
<output_path>/profiler/rank_<r>/rank.json
<output_path>/profiler/rank_<r>/<table>.parquet         one file, or
<output_path>/profiler/rank_<r>/<table>/<part>.parquet  parts in time order while the run records
<output_path>/profiler/rank_<r>/events/                 event rings and window traces that are not yet in tables
<output_path>/earlier/<created>/profiler/               a run that a later one in the same place set aside

It also spells the command that completes a killed run, for messages.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

PROFILER_FOLDER = "profiler"
RUN_FILE = "run.json"
RANK_FILE = "rank.json"
CONTROL_FILE = "control.json"
EVENTS_FOLDER = "events"
EARLIER_FOLDER = "earlier"
_RANK_NAME = re.compile(r"rank_(0|[1-9][0-9]{0,6})")
_BESIDE_RANKS = re.compile(r"\.?(run|control)\.json(\..*)?", re.DOTALL)


def profiler_path(run_path: Path) -> Path:
    return run_path / PROFILER_FOLDER


def run_file(run_path: Path) -> Path:
    return run_path / PROFILER_FOLDER / RUN_FILE


def control_file(run_path: Path) -> Path:
    return run_path / PROFILER_FOLDER / CONTROL_FILE


def rank_path(run_path: Path, rank: int) -> Path:
    return run_path / PROFILER_FOLDER / f"rank_{rank}"


def rank_file(run_path: Path, rank: int) -> Path:
    return rank_path(run_path, rank) / RANK_FILE


def table_file(rank_folder: Path, table: str) -> Path:
    return rank_folder / f"{table}.parquet"


def table_parts_folder(rank_folder: Path, table: str) -> Path:
    return rank_folder / table


def events_path(rank_folder: Path) -> Path:
    return rank_folder / EVENTS_FOLDER


def find_run_path(path: Path) -> Path | None:
    """Return the path of the run to which a file belongs, judged by the names in its path; None if it is in no run.

    A run consists of its rank folders with all their content, and of its own files beside these folders.
    """
    parts = path.parts
    for index in range(len(parts) - 2, -1, -1):
        if parts[index] == PROFILER_FOLDER:
            is_last = index + 2 == len(parts)
            if _RANK_NAME.fullmatch(parts[index + 1]) or (is_last and _BESIDE_RANKS.fullmatch(parts[index + 1])):
                return Path(*parts[:index])
    return None


def find_ranks(run_path: Path) -> tuple[int, ...]:
    """Return the ranks that have a folder, sorted. OSError if the run cannot be listed."""
    matches = map(_RANK_NAME.fullmatch, os.listdir(profiler_path(run_path)))
    return tuple(sorted(int(match.group(1)) for match in matches if match))


def is_rank_name(name: str) -> bool:
    return _RANK_NAME.fullmatch(name) is not None


def spell_recovery(file: Path) -> str:
    """Return the recovery command for a file's run, ready to paste into a shell."""
    folders = [folder for folder in file.parents if folder.name == PROFILER_FOLDER]
    return f"stepscope recover {shlex.quote(str(folders[0].parent if folders else file.parent))}"


def advise_on_manifest(file: Path) -> str:
    """Return advice on a damaged run.json or rank.json.

    Only the rank.json of a killed rank can be made again, from the data that its recorder left in `events/`.
    """
    if file.name == RANK_FILE and events_path(file.parent).is_dir():
        return f"run `{spell_recovery(file)}`"
    return "it cannot be made again, the tables beside it are not affected"
