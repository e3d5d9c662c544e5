"""Sampled stacks for other viewers, read back by the published form of each format."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from collector.format.run import Run, open_run
from collector.format.schema.errors import OptionError, RunError
from profiler_server.analysis.stacks.stacks import read_stacks
from profiler_server.timeline.export_stacks import export_stacks
from tests.support.runs import RunPlan, build_run
from tests.support.stacks import in_phase, in_stage, library, own, write_stacks

ROWS = [
    in_phase("forward", 300, own("train", 20), own("Model.forward", 31)),
    in_phase("forward", 100, own("train", 20), own("Model.forward", 35)),
    in_phase("backward", 40, own("train", 22), library("backward", "torch/_tensor.py", 581)),
    in_stage("transform", 70, own("Photos.__getitem__", 12, "photos.py"), library("resize", "PIL/Image.py", 2300)),
    in_stage("read", 30, own("Photos.__getitem__", 11, "photos.py")),
    in_stage("read", 5, own("Photos.__getitem__", 11, "photos.py"), replica=-1),
]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return open_run(write_stacks(build_run(tmp_path / "digits", RunPlan(ranks=2)), ROWS, start_ns=10**9))


def build_profile_class() -> Any:
    """The messages of pprof's profile.proto, as far as they are needed to read a profile of ours."""
    whole = descriptor_pb2.FieldDescriptorProto
    fields = {
        "ValueType": [("type", 1, "int64", False), ("unit", 2, "int64", False)],
        "Label": [(name, at, "int64", False) for at, name in enumerate(("key", "str", "num", "num_unit"), 1)],
        "Line": [("function_id", 1, "uint64", False), ("line", 2, "int64", False)],
        "Sample": [("location_id", 1, "uint64", True), ("value", 2, "int64", True), ("label", 3, "Label", True)],
        "Location": [("id", 1, "uint64", False), ("line", 4, "Line", True)],
        "Function": [
            ("id", 1, "uint64", False),
            *((name, at, "int64", False) for at, name in enumerate(("name", "system_name", "filename"), 2)),
        ],
        "Profile": [
            ("sample_type", 1, "ValueType", True),
            ("sample", 2, "Sample", True),
            ("location", 4, "Location", True),
            ("function", 5, "Function", True),
            ("string_table", 6, "string", True),
        ],
    }
    plain = {"int64": whole.TYPE_INT64, "uint64": whole.TYPE_UINT64, "string": whole.TYPE_STRING}
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="pprof", syntax="proto3")
    for name, entries in fields.items():
        message = file.message_type.add(name=name)
        for field, number, kind, is_repeated in entries:
            message.field.add(
                name=field,
                number=number,
                type=plain.get(kind, whole.TYPE_MESSAGE),
                type_name=None if kind in plain else f".pprof.{kind}",
                label=whole.LABEL_REPEATED if is_repeated else whole.LABEL_OPTIONAL,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("pprof.Profile"))


def read_pprof(path: Path) -> dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], int]:
    """Return the count of each stack, outermost first, with its labels."""
    profile = build_profile_class().FromString(gzip.decompress(path.read_bytes()))
    texts = list(profile.string_table)
    assert texts[0] == ""
    assert [(texts[kind.type], texts[kind.unit]) for kind in profile.sample_type] == [("samples", "count")]
    functions = {function.id: function for function in profile.function}
    places = {place.id: place.line[0] for place in profile.location}
    assert 0 not in functions
    assert 0 not in places
    found = {}
    for sample in profile.sample:
        lines = [places[number] for number in reversed(sample.location_id)]
        stack = tuple(
            f"{texts[functions[line.function_id].name]} ({texts[functions[line.function_id].filename]}:{line.line})"
            for line in lines
        )
        labels = tuple((texts[label.key], texts[label.str]) for label in sample.label)
        found[stack, labels] = sample.value[0]
    return found


def test_pprof_has_each_stack_with_rank_phase_and_stage(run: Run, tmp_path: Path) -> None:
    assert export_stacks(run, tmp_path / "stacks.pb.gz") == 545
    found = read_pprof(tmp_path / "stacks.pb.gz")
    by_label = {labels: count for (_, labels), count in found.items()}
    assert by_label[("rank", "0"), ("phase", "backward")] == 40
    assert by_label[("rank", "0"), ("loader", "0"), ("stage", "transform")] == 70
    assert by_label[("rank", "0"), ("loader", "0"), ("stage", "read")] == 30
    assert by_label[("rank", "0"), ("phase", "data_wait"), ("stage", "read")] == 5
    forward = {stack[-1]: count for (stack, labels), count in found.items() if ("phase", "forward") in labels}
    assert forward == {
        "Model.forward (/home/me/train.py:31)": 300,
        "Model.forward (/home/me/train.py:35)": 100,
    }
    outermost = {stack[0] for (stack, labels), _ in found.items() if ("phase", "forward") in labels}
    assert outermost == {"train.py (/home/me/train.py:90)"}


def test_speedscope_has_a_profile_for_each_phase_and_stage(run: Run, tmp_path: Path) -> None:
    export_stacks(run, tmp_path / "stacks.speedscope.json")
    found = json.loads((tmp_path / "stacks.speedscope.json").read_text())
    check_speedscope(found)
    weights = {profile["name"]: sum(profile["weights"]) for profile in found["profiles"]}
    assert weights == {
        "rank 0: Forward": 400,
        "rank 0: Backward": 40,
        "rank 0: Data wait": 5,
        "rank 0: workers of loader 0, transform": 70,
        "rank 0: workers of loader 0, read": 30,
    }
    forward = next(profile for profile in found["profiles"] if profile["name"] == "rank 0: Forward")
    frames = found["shared"]["frames"]
    leaves = {json.dumps(frames[stack[-1]]) for stack in forward["samples"]}
    # One function, although it was seen at two lines; its line is the one that was seen most.
    assert leaves == {json.dumps({"name": "Model.forward", "file": "/home/me/train.py", "line": 31})}


def check_speedscope(found: dict[str, Any]) -> None:
    """What speedscope's file-format-spec asks of a file with sampled profiles."""
    assert found["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert 0 <= found["activeProfileIndex"] < len(found["profiles"])
    frames = found["shared"]["frames"]
    for frame in frames:
        assert isinstance(frame["name"], str)
        assert set(frame) <= {"name", "file", "line", "col"}
        assert isinstance(frame.get("line", 0), int)
    for profile in found["profiles"]:
        assert profile["type"] == "sampled"
        assert profile["unit"] in ("none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes")
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
        assert all(0 <= index < len(frames) for stack in profile["samples"] for index in stack)


def test_the_samples_are_those_of_the_pages(run: Run, tmp_path: Path) -> None:
    stacks = read_stacks(run.rank(0))
    assert stacks is not None
    export_stacks(run, tmp_path / "stacks.speedscope.json")
    found = json.loads((tmp_path / "stacks.speedscope.json").read_text())
    weights = {profile["name"]: sum(profile["weights"]) for profile in found["profiles"]}
    assert weights["rank 0: Forward"] == stacks.phase("forward").samples
    assert weights["rank 0: workers of loader 0, read"] == stacks.stage(0, "read").samples


def test_names_of_a_stranger_stay_names(tmp_path: Path) -> None:
    odd = 'f"\\\n</script>\u202e'
    rows = [in_phase("forward", 50, own(odd, 3)), in_phase("forward", 9, "no frame at all", "x" * 5000)]
    run = open_run(write_stacks(build_run(tmp_path / "digits", RunPlan()), rows, start_ns=10**9))
    export_stacks(run, tmp_path / "a.speedscope.json")
    check_speedscope(json.loads((tmp_path / "a.speedscope.json").read_text()))
    export_stacks(run, tmp_path / "a.pb.gz")
    assert sum(read_pprof(tmp_path / "a.pb.gz").values()) == 59


def test_what_cannot_be_written_is_refused_in_one_line(run: Run, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"must end in \.speedscope\.json"):
        export_stacks(run, tmp_path / "stacks.svg")
    with pytest.raises(OptionError, match="7"):
        export_stacks(run, tmp_path / "stacks.pb.gz", ranks="7")
    with pytest.raises(RunError, match="no sampled stacks"):
        export_stacks(run, tmp_path / "stacks.pb.gz", ranks="1")
    assert not (tmp_path / "stacks.pb.gz").exists()
