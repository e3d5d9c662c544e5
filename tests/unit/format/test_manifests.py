"""Manifests are user data: each field is of its kind and within reason, or an error names the file and the field."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from collector.format.schema.errors import TableBrokenError
from collector.format.schema.manifest import (
    Device,
    Loader,
    Overhead,
    RankManifest,
    RunManifest,
    Signal,
    Warn,
    Window,
    decode_manifest,
    encode_manifest,
)

RANK = RankManifest(
    rank=0,
    host="h",
    pid=7,
    state="complete",
    started_unix_ns=1,
    heartbeat_unix_ns=2,
    devices=(Device(0, "A100", memory_bytes=1, multiprocessors=2, compute_capability="8.0"),),
    loaders=(Loader(0, "Files", "map", batch_size=4, num_workers=2, prefetch_factor=2),),
    signals=(Signal("phases", "on"),),
    overhead=Overhead(1.0, 0.1),
    windows=(Window(1, 2, 3, 4),),
    warnings=(Warn("code", "text"),),
)
RUN = RunManifest("id", "name", 1, 2, "collector", 1, "h", argv=("train.py",))
HOSTILE: tuple[Any, ...] = ("text", -1.5, True, None, [], {}, [[]], {"a": 1}, 2**63, -(2**64), 10**400, "\ud800")


def find_leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the path of every value of a manifest, those in between among them."""
    if path:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield from find_leaves(inner, (*path, key))


def put(raw: dict[str, Any], path: tuple[Any, ...], value: Any) -> str:
    changed = copy.deepcopy(raw)
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(changed)


def spell(path: tuple[Any, ...]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


def explain_refusal(kind: type[Any], text: str) -> str:
    """Return the message of the error that reading gives, empty for none."""
    try:
        decode_manifest(kind, text, "/runs/a/rank.json")
    except TableBrokenError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("manifest", [RUN, RANK], ids=["run", "rank"])
def test_a_hostile_value_is_taken_as_what_it_is_or_named(manifest: RunManifest | RankManifest) -> None:
    raw = json.loads(encode_manifest(manifest))
    raw.pop("schema_version", None)  # a version to come has an error of its own
    said = {
        (path, number): explain_refusal(type(manifest), put(raw, path, value))
        for path in find_leaves(raw)
        for number, value in enumerate(HOSTILE)
    }
    refused = {path: message for (path, _), message in said.items() if message}
    assert len(refused) > 15
    for path, message in refused.items():
        assert message.startswith("/runs/a/rank.json is damaged: ")
        assert f"damaged: {spell(path)}" in message
        assert "it cannot be made again" in message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("loaders", 0, "num_workers"), "2"),
        (("loaders", 0, "num_workers"), -1),
        (("loaders", 0, "num_workers"), 10**9),
        (("loaders", 0, "style"), "odd"),
        (("devices", 0, "index"), 1.5),
        (("windows", 0, "start_ns"), None),
        (("signals", 0), "phases"),
        (("overhead", "share_frac"), "much"),
        (("warnings", 0, "text"), 5),
        (("facts",), []),
        (("cpu_count",), -4),
    ],
)
def test_a_nested_field_of_the_wrong_kind_is_damage(path: tuple[Any, ...], value: Any) -> None:
    raw = json.loads(encode_manifest(RANK))
    with pytest.raises(TableBrokenError, match="damaged: "):
        decode_manifest(RankManifest, put(raw, path, value), "rank.json")


def test_missing_fields_are_all_named_and_what_is_left() -> None:
    with pytest.raises(TableBrokenError) as caught:
        decode_manifest(RunManifest, '{"id": "x", "name": "x"}', "run.json")
    assert str(caught.value) == (
        "run.json lacks created_unix_ns, epoch_unix_ns, source, world_size, host; it cannot be made again, the tables "
        "beside it are not affected"
    )


def test_a_missing_field_is_named() -> None:
    raw = json.loads(encode_manifest(RANK))
    del raw["loaders"][0]["dataset"]
    with pytest.raises(TableBrokenError, match=r"loaders\[.*dataset|dataset.*loaders"):
        decode_manifest(RankManifest, json.dumps(raw), "rank.json")


def test_optional_fields_may_be_missing_and_unknown_ones_are_ignored() -> None:
    least = {"rank": 0, "host": "h", "pid": 7, "state": "complete", "started_unix_ns": 1, "heartbeat_unix_ns": 2}
    found = decode_manifest(RankManifest, json.dumps({**least, "later": [1], "overhead": {"later": 2}}), "rank.json")
    assert found == RankManifest(0, "h", 7, "complete", 1, 2)
    loader = {"id": 0, "dataset": "Files", "style": "map", "later": True}
    assert decode_manifest(RankManifest, json.dumps({**least, "loaders": [loader]}), "").loaders == (
        Loader(0, "Files", "map"),
    )
