"""The curve of a device, the change by operator, and exactly the blocks that were alive at a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.format.parts import build_table_from_rows, write_table
from collector.format.run import RankRun, open_run
from collector.format.schema import layout
from collector.format.schema.errors import TableMissingError
from collector.format.schema.manifest import Window
from collector.traces.importing import import_trace
from profiler_server.analysis.memory.memory import (
    NO_OPERATOR,
    MemoryTrace,
    find_row,
    list_live,
    read_memory,
    sum_operators,
)
from profiler_server.analysis.memory.resources import (
    Resources,
    Series,
    StepScale,
    find_throttling,
    read_resources,
    read_scale,
    sum_series,
    summarize_host,
)
from profiler_server.diagnosis.measuring import measure_case
from profiler_server.pages.memory.tensors import view_tensors
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.machines import MIB, build_machine
from tests.support.must import must
from tests.support.row_edits import cpu_cores
from tests.support.runs import RunPlan, build_run
from tests.support.traces import Event, operator, step, training_steps, write_trace


def make_trace(changes: list[tuple[int, int]], device: int = 0) -> MemoryTrace:
    """A trace of (address, change) at times 0, 10, 20 …"""
    change = np.array([value for _, value in changes], np.int64)
    address = np.array([place for place, _ in changes], np.int64)
    count = len(changes)
    nothing = np.full(count, -1)
    return MemoryTrace(
        device,
        np.arange(count) * 10,
        nothing,
        np.cumsum(change),
        nothing,
        change,
        address,
        np.zeros(count, int),
        ("op",),
        *(np.full(count, None, object),) * 3,
    )


def test_the_peak_and_what_was_alive_then(tmp_path: Path) -> None:
    rank = open_run(build_machine(tmp_path / "run")).rank(0)
    (trace,) = read_memory(rank)
    assert trace.peak_bytes == (512 + 64 + 32 + 16 + 3 * 8) * MIB
    assert trace.peak_reserved_bytes == 1024 * MIB
    live = list_live(trace, trace.peak_row, rank.manifest.windows)
    assert [block.size_bytes // MIB for block in live.blocks] == [64, 32, 16, 8, 8, 8]
    assert live.blocks[0].operator == "aten::mm"
    assert live.before_bytes == 512 * MIB
    assert live.known_bytes + live.before_bytes == live.allocated_bytes


def test_operators_are_summed_by_what_they_took(tmp_path: Path) -> None:
    (trace,) = read_memory(open_run(build_machine(tmp_path / "run")).rank(0))
    changes = sum_operators(trace)
    assert [entry.operator for entry in changes][:2] == ["aten::mm", "aten::convolution"]
    assert changes[0].allocated_bytes == 3 * 64 * MIB
    assert sum(entry.net_bytes for entry in changes) == 3 * 8 * MIB
    assert changes[-1].released_bytes == 3 * 112 * MIB


def test_an_address_that_is_taken_again_counts_once() -> None:
    trace = make_trace([(1, 100), (1, -100), (1, 40), (2, 7)])
    live = list_live(trace, 3)
    assert [(block.address, block.size_bytes, block.born_ns) for block in live.blocks] == [(1, 40, 20), (2, 7, 30)]


def test_blocks_of_an_earlier_window_are_not_taken_for_alive() -> None:
    trace = make_trace([(1, 100), (2, 50), (3, 25)])
    windows = (Window(1, 1, 0, 12), Window(9, 9, 15, 40))
    live = list_live(trace, 2, windows)
    assert [block.address for block in live.blocks] == [3]
    assert live.before_bytes == 150


def test_the_nearest_event_is_found() -> None:
    trace = make_trace([(1, 1), (2, 1), (3, 1)])
    assert [find_row(trace, at) for at in (-5, 4, 6, 12, 99)] == [0, 0, 1, 1, 2]


def test_shared_memory_of_workers_is_no_dip_in_host_memory(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", RunPlan(steps=2))
    events = [(100, 100), (0, 4096), (150, 50), (0, -4096), (0, -150)]
    rows = [
        {
            "start_ns": at,
            "device": -1,
            "allocated_bytes": held,
            "change_bytes": change,
            "reserved_bytes": 0,
            "address": at,
        }
        for at, (held, change) in enumerate(events)
    ]
    write_table(build_table_from_rows("memory", rows), layout.table_file(layout.rank_path(run, 0), "memory"))
    (trace,) = read_memory(open_run(run).rank(0))
    assert trace.allocated_bytes.tolist() == [100, 150, 0]
    assert trace.peak_reserved_bytes is None
    assert trace.name(0) == NO_OPERATOR


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 1000)), min_size=1, max_size=60), st.data())
def test_what_is_alive_is_what_a_walk_finds(takes: list[tuple[int, int]], data: st.DataObject) -> None:
    held: dict[int, int] = {}
    changes = []
    for address, size in takes:  # a taken address is given back, a free one is taken
        changes.append((address, -held.pop(address) if address in held else held.setdefault(address, size)))
    row = data.draw(st.integers(0, len(changes) - 1))
    walked: dict[int, int] = {}
    for address, change in changes[: row + 1]:
        if change > 0:
            walked[address] = change
        else:
            del walked[address]
    live = list_live(make_trace(changes), row, most=100)
    assert {block.address: block.size_bytes for block in live.blocks} == walked
    assert live.before_bytes == 0


def test_without_addresses_no_block_is_claimed_and_the_level_counts_from_the_lowest(tmp_path: Path) -> None:
    changes = [(100, 4 * MIB), (110, -6 * MIB), (120, 5 * MIB), (130, -MIB)]
    events = [_allocate(at, change) for at, change in changes]
    rank = import_trace(write_trace(tmp_path / "t.json", [*training_steps(), *events]), tmp_path / "run").rank()
    (trace,) = read_memory(rank)
    assert trace.allocated_bytes.tolist() == [6 * MIB, 0, 5 * MIB, 4 * MIB]
    live = list_live(trace, trace.peak_row)
    assert (live.count, live.before_bytes, live.blocks, live.has_addresses) == (0, 0, (), False)
    view = view_tensors(rank, {})
    assert "6.00 MiB more were allocated than at the lowest level" in view.moment.sentence
    assert "0 blocks" not in view.moment.sentence


def _allocate(at_us: float, change: int, **args: int) -> Event:
    event = {**operator("[memory]", at_us, 0), "ph": "i", "cat": "cpu_instant_event", "s": "t"}
    return {**event, "args": {"Device Type": 1, "Device Id": 0, "Bytes": change, **args}}


def test_live_blocks_tell_shape_type_and_module_where_the_trace_does(tmp_path: Path) -> None:
    module = {**operator("nn.Module: Net_0", 0, 100), "cat": "python_function"}
    size = {"Concrete Inputs": ["[128, 64]", "15", "0", "", "", ""], "Input Dims": [[], [], [], [], [], []]}
    product = {
        "Input Dims": [[32], [16, 8], [8, 32], [], []],
        "Input type": ["float", "float", "float", "Scalar", "Scalar"],
    }
    events = [
        *(step(1, 0, 300), module, operator("aten::empty", 10, 5, **size), operator("aten::addmm", 20, 5, **product)),
        *(operator("aten::cumsum", 120, 5), operator("aten::empty", 130, 5, **size)),
        _allocate(12, 16_384, Addr=1, **{"Total Allocated": 16_384}),
        _allocate(22, 2_048, Addr=2, **{"Total Allocated": 18_432}),
        _allocate(122, 512, Addr=3, **{"Total Allocated": 18_944}),
        _allocate(132, 65_536, Addr=4, **{"Total Allocated": 84_480}),  # larger than what its arguments say
    ]
    rank = import_trace(write_trace(tmp_path / "t.json", events), tmp_path / "run").rank()
    (trace,) = read_memory(rank)
    blocks = list_live(trace, trace.peak_row).blocks
    assert {block.address: (block.shape, block.dtype, block.module) for block in blocks} == {
        1: ("[128, 64]", "bfloat16", "Net_0"),
        2: ("[16, 32]", "float32", "Net_0"),
        3: (None, None, None),
        4: (None, None, None),
    }
    assert view_tensors(rank, {}).moment.live.blocks == blocks


SCALE = StepScale(np.array([1, 2]), np.array([100, 300]), np.array([200, 500]))


def open_machine(path: Path) -> RankRun:
    return open_run(build_machine(path)).rank(0)


def test_a_time_inside_of_a_step_lies_that_far_into_it() -> None:
    assert SCALE.place(np.array([100, 150, 400])).tolist() == [1.0, 1.5, 2.5]


def test_a_time_between_two_steps_lies_at_their_border_and_one_outside_nowhere() -> None:
    placed = SCALE.place(np.array([250, 99, 501]))
    assert placed[0] == 2.0
    assert np.isnan(placed[1:]).all()


def test_without_steps_the_axis_counts_seconds() -> None:
    assert StepScale.empty().unit == "s"
    assert StepScale.empty().place(np.array([2_500_000_000])).tolist() == [2.5]


def test_every_source_and_metric_is_a_series_of_its_own(tmp_path: Path) -> None:
    rank = open_machine(tmp_path / "run")
    resources = read_resources(rank, read_scale(rank))
    assert [entry.source for entry in resources.pick("cpu_cores", "worker ")] == ["worker 0", "worker 1"]
    power = must(resources.find("gpu 0", "power_w"))
    assert 420 <= power.mean <= power.peak <= 460
    assert resources.find("gpu 1", "power_w") is None
    assert (resources.unit, resources.outside) == ("step", 0)


def test_a_range_of_steps_narrows_the_samples(tmp_path: Path) -> None:
    rank = open_machine(tmp_path / "run")
    series = must(read_resources(rank, read_scale(rank), (50, 90)).find("process", "cpu_cores"))
    assert series.x.min() >= 50
    assert series.x.max() < 91


def test_workers_add_up_and_one_that_came_later_adds_nothing_before() -> None:
    first = Series("worker 0", "cpu_cores", np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.5, 0.5]))
    later = Series("worker 1", "cpu_cores", np.array([3.0]), np.array([1.0]))
    total = must(sum_series([first, later], "workers"))
    assert total.value.tolist() == [0.5, 0.5, 1.5]
    assert sum_series([], "workers") is None


def test_a_run_without_samples_raises(tmp_path: Path) -> None:
    rank = open_run(build_run(tmp_path / "run", RunPlan())).rank(0)
    with pytest.raises(TableMissingError):
        read_resources(rank, read_scale(rank))


def test_throttling_is_told_by_gpu_with_its_most_frequent_cause_first() -> None:
    x = np.arange(8.0)
    hot = Series("gpu 1", "throttle_flags", x, np.array([0, 0, 0, 0, 1, 3, 2, 2.0]))
    cool = Series("gpu 0", "throttle_flags", x, np.zeros(8))
    (found,) = find_throttling(Resources((cool, hot), 8, 0, "step"))
    assert (found.source, found.share_frac) == ("gpu 1", 0.5)
    assert found.causes == (("heat", 0.375), ("power", 0.25))


ALL = (0, 10**12)


def queueing(source: str, share: float) -> list[dict[str, Any]]:
    return [
        {"start_ns": row["start_ns"], "source": source, "metric": "run_queue_frac", "value": share}
        for row in cpu_cores(1.0, 1.0)[::2]
    ]


def test_others_are_what_the_system_used_beyond_the_run(tmp_path: Path) -> None:
    rank = build_case_run(tmp_path / "run", Plant(tables={"resources": cpu_cores(process=1.5, system=3.5)})).rank()
    host = must(summarize_host(rank, *ALL))
    assert (host.process, host.system, host.others, host.stretch) == (1.5, 3.5, 2.0, None)


def test_others_on_cores_that_the_run_may_not_use_are_told_from_those_beside_it(tmp_path: Path) -> None:
    """One core of four is the run's: it gets half of it, another program the rest, and two more are busy elsewhere."""
    rows = cpu_cores(process=0.5, system=3.0)
    usable = [{**row, "metric": "usable_cpu_cores", "value": 1.0} for row in rows if row["source"] == "system"]
    queued = queueing("process", 0.5)
    run = build_case_run(
        tmp_path / "run",
        Plant(plan_of(), manifest={"usable_cores": 1.0}, tables={"resources": [*rows, *usable, *queued]}),
    )
    case = must(measure_case(run, run.rank()))
    assert case.host.load is not None
    assert case.host.load.others == pytest.approx(0.5)
    assert case.loading.loop.model.others == pytest.approx(1.0, abs=0.1)
    assert case.demand_frac == pytest.approx(1.0)


def test_time_in_the_queue_for_a_processor_stretches_work(tmp_path: Path) -> None:
    rows = [*cpu_cores(process=0.5, system=4.0), *queueing("process", 0.5)]
    run = build_case_run(tmp_path / "run", Plant(plan_of(data_wait=20.0), tables={"resources": rows}))
    host = must(summarize_host(run.rank(), *ALL))
    assert host.stretch == pytest.approx(2.0)
    case = must(measure_case(run, run.rank()))
    assert case.loading.loop.contention_frac >= 0.4
    # What was waiting for a processor is no longer counted as the work itself.
    assert case.loading.loop.model.steps[0].wall_ns < 0.6 * 64e6


def test_a_host_that_was_not_sampled_is_none(tmp_path: Path) -> None:
    assert summarize_host(build_case_run(tmp_path / "run", Plant()).rank(), *ALL) is None
