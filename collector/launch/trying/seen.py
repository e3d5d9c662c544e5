"""What the recorded run of a search leaves to be tried: the server knows the settings, and what each can gain."""

from __future__ import annotations

from pathlib import Path

from collector import server
from collector.format.run import open_run
from collector.format.schema.errors import RunError
from collector.launch.trying.knobs import Candidate
from collector.launch.trying.search import TrialFailed


def list_candidates(folder: Path) -> list[Candidate]:
    """Return the changes that may gain, the most that each can gain first; those whose trials take long come last.

    Raises TrialFailed if the recorded run cannot be read.
    """
    try:
        run = open_run(folder)
        changes = [each for each in server.list_changes(run, run.rank().rank) if each.change]
    except RunError as error:
        raise TrialFailed(str(error)) from None
    found = [
        Candidate(each.knob, each.label, each.change, each.code, each.place, each.keywords, each.is_slow)
        for each in changes
    ]
    return sorted(found, key=lambda each: each.is_slow)
