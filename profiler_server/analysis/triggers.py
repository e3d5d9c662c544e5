"""Why detailed windows opened by themselves, as the collector noted it."""

from __future__ import annotations

from collector.schema.manifest import RankManifest, Window

BY_ITSELF = ("outlier", "starvation", "drift")
_MOST_TEXT = 200


def find_reasons(manifest: RankManifest) -> tuple[tuple[Window, str], ...]:
    """Return the windows that opened by themselves, each with half a sentence: "step 412 took 6.1× the median".

    The text is that of the last order of its kind before the window, "" where none was noted.
    """
    noted = manifest.facts.get("triggers", ())
    entries = [entry for entry in noted if isinstance(entry, dict)] if isinstance(noted, (list, tuple)) else []
    found = []
    for window in manifest.windows:
        if window.trigger in BY_ITSELF:
            texts = [str(entry.get("text", "")) for entry in entries if _may_open(entry, window)]
            found.append((window, texts[-1][:_MOST_TEXT] if texts else ""))
    return tuple(found)


def _may_open(entry: dict[str, object], window: Window) -> bool:
    step = entry.get("step")
    return entry.get("trigger") == window.trigger and isinstance(step, int) and step < window.first_step
