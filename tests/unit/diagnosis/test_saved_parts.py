"""What a change takes away, and what is assumed of it where it cannot be known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collector.estimating.model import Job
from collector.format.steps import read_integers
from profiler_server.diagnosis.limits.facts import COPY_BYTES_PER_NS
from profiler_server.diagnosis.limits.loading import TENSORS_SEND_NS
from profiler_server.diagnosis.limits.verdict import EASED_FRAC
from profiler_server.diagnosis.ranking import Fixed, make_claim
from profiler_server.diagnosis.verdict import find_bound, say_limit
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.facts.case import Abstention, Case, Finding, Rule, Text
from profiler_server.facts.steps import CompileEvents, Held, Interruptions, ModelCalls, UnusedGradients
from tests.support import facts as make
from tests.support.runs import MS
from tests.unit.diagnosis.edges import noted
from tests.unit.diagnosis.edges.base import STEPS, base
from tests.unit.diagnosis.edges.loading import receiving
from tests.unit.diagnosis.edges.noted import padded, untrained

EVERY = 6


def recompiling(stall: float, compiling: float = 0.5, skipped: int = 0) -> Case:
    """Every sixth step takes `stall` of a usual one longer, part of which is the recompilation itself.

    The first `skipped` steps are left out of the mean.
    """
    stalled = np.arange(STEPS) % EVERY == 0
    case = make.with_durations(base(), lambda usual: usual * np.where(stalled, 1.0 + stall, 1.0))
    starts = read_integers(case.steps.rows, "start_ns")[stalled]
    zeros = np.zeros(len(starts), np.int64)
    took = zeros + int(compiling * stall * 64 * MS)
    found = Interruptions((Held("recompile", "f", "size"),), zeros, starts, took, zeros)
    kept = np.arange(STEPS) >= skipped
    selection = replace(case.steps.selection, kept=kept)
    mean_ns = float(selection.duration_ns[kept].mean())
    events = {"recompile": CompileEvents(len(starts), int(took.sum()), 1, "f", "size")}
    return make.with_steps(case, interruptions=found, compiles=events, selection=selection, mean_ns=mean_ns)


@pytest.mark.parametrize("skipped", [0, 60])
def test_recompiling_costs_what_its_steps_are_longer(skipped: int) -> None:
    case = recompiling(3.0, skipped=skipped)
    what_if = make.find(case, "recompiles").what_if
    assert what_if.touches["stalls"] == pytest.approx(3.0 * 64 * MS / EVERY, rel=0.01)


def test_stalls_that_are_recompilations_are_left_to_the_rule_about_those() -> None:
    assert make.speaks(replace_interruptions(recompiling(3.0)), "periodic_stall")
    assert not make.speaks(recompiling(3.0), "periodic_stall")
    assert make.speaks(recompiling(3.0, compiling=0.4), "periodic_stall")


def replace_interruptions(case: Case) -> Case:
    return make.with_steps(case, interruptions=base().steps.interruptions)


def test_garbage_of_the_compiler_is_not_that_of_the_steps() -> None:
    stalled = np.arange(STEPS) % EVERY == 0
    case = make.with_rows(recompiling(3.0), gc_ns=np.where(stalled, 120 * MS, 0))
    assert not make.speaks(case, "gc_pauses")
    assert make.speaks(replace_interruptions(case), "gc_pauses")


@pytest.mark.parametrize("copied_ms", [0.0, 5.0])
def test_objects_are_expected_to_be_sent_as_fast_as_tensors_of_their_size(copied_ms: float) -> None:
    case = receiving(copied_ms * MS * COPY_BYTES_PER_NS)
    batches = case.loading.batches
    assert batches is not None
    send = np.full(len(batches.total_ns), case.loading.wait_ns)
    sent = replace(batches, stages_ns={"send": send}, total_ns=send)
    case = make.with_model(make.with_loading(case, batches=sent), batches=(Job(float(send[0]), 0.1),))
    what_if = make.find(case, "ipc_bound").what_if
    changed = what_if.change(case.loading.loop.model)
    left = changed.batches[0].wall_ns / case.loading.loop.model.batches[0].wall_ns
    assert left == pytest.approx((TENSORS_SEND_NS + copied_ms * MS) / send[0])


@pytest.mark.parametrize(("part", "device"), [("outside", False), ("outside", True), ("communication", False)])
def test_the_rest_of_a_step_may_take_less_where_computing_goes(part: str, device: bool) -> None:
    """Not what a device computes, and not where the training thread only waited."""
    case = make.with_device(base()) if device else base()
    assert case.device.is_used is device
    what_if = shorten_step(case, part, 0.5 * case.loading.loop.own_ns, 1.0)
    finding = Finding(Text(*"tmtacf"), (), what_if=what_if, doubt_frac=0.0)
    rule = Rule("x", knob="x", effort="code", judge=lambda case: None)
    claim = make_claim(case, rule, finding, Fixed(case.loading.loop.model, case.steps.mean_ns, {}))
    untouched_ns = case.steps.mean_ns - sum(what_if.touches.values())
    assert claim.step_ns >= untouched_ns - 1
    gone = 1.0 - claim.step_ns / case.steps.mean_ns
    expected = claim.step_ns if device or part == "communication" else claim.step_ns * (1.0 - EASED_FRAC * gone)
    assert claim.low_ns == pytest.approx(expected, rel=0.01)


def test_a_restart_costs_the_late_first_batch_of_each_worker() -> None:
    """Two workers: the first step of an epoch waits 300 ms longer, the second 40 ms; a batch takes 10 ms to make."""
    first = np.arange(STEPS) % 20 == 0
    waits = 2 * MS + np.where(first, 300 * MS, 0) + np.where(np.roll(first, 1), 40 * MS, 0)
    case = make.with_batches(make.with_rows(base(), data_wait_ns=waits), 10.0 * MS)
    selection = replace(case.steps.selection, first_of_epoch=first)
    case = make.with_loader(make.with_steps(case, selection=selection), num_workers=2, persistent_workers=False)
    assert "cost 330 ms each" in make.find(case, "worker_restart").text.measured
    slow = np.arange(STEPS) % 20 == 7
    longer = make.with_rows(case, forward_ns=20 * MS + np.where(first, 150 * MS, 0) + np.where(slow, 900 * MS, 0))
    assert "cost 430 ms each" in make.find(longer, "worker_restart").text.measured


@pytest.mark.parametrize(("queued", "others", "saved"), [(0.5, 0.0, 0.5), (0.5, 2.0, 0.25), (0.9, 0.0, 0.6)])
def test_too_many_threads_cost_what_the_main_thread_queues_for_no_one_else(
    queued: float, others: float, saved: float
) -> None:
    """Half of four cores taken by other programs explains half of the queueing; what does not compute is not shortened."""
    phases = dict.fromkeys(base().steps.phases_ns, 0.0) | {"forward": 0.6 * 64 * MS}
    case = make.with_manifest(make.with_steps(base(), phases_ns=phases), torch_threads=32, usable_cores=4.0)
    case = make.with_load(case, queued_frac=queued, others=others, workers=0.0)
    what_if = make.find(case, "threads_over_cores").what_if
    changed = what_if.change(case.loading.loop.model)
    own_frac = 1.0 - changed.left / case.loading.loop.model.left
    assert own_frac * case.loading.loop.own_ns == pytest.approx(saved * case.steps.mean_ns, rel=0.01)


def test_where_queueing_was_not_seen_fewer_threads_promise_nothing() -> None:
    case = make.with_manifest(make.split_step(base(), forward=0.6, tail=0.4), torch_threads=32)
    assert make.find(make.with_load(case, queued_frac=None), "threads_over_cores").what_if is None


def test_the_backward_of_a_model_that_is_not_trained_goes_with_its_part_of_the_parameters() -> None:
    finding = make.find(untrained(0.75), "needless_grad")
    changed = finding.what_if.change(base().loading.loop.model)
    saved_ns = (base().loading.loop.model.left - changed.left) * base().loading.loop.own_ns
    assert saved_ns == pytest.approx(0.75 * 32 * MS, rel=0.01)
    assert "750,000 parameters" in finding.text.measured or "750 k" in finding.text.measured.lower()


def _measure_saved_ns(case: Case, rule: str) -> float:
    finding = make.find(case, rule)
    changed = finding.what_if.change(case.loading.loop.model)
    return float((case.loading.loop.model.left - changed.left) * case.loading.loop.own_ns)


def test_without_gradients_the_forward_takes_less_too() -> None:
    noted = UnusedGradients(1_000_000, 0, 1_000_000, backward_frac=0.5)
    phases = dict.fromkeys(base().steps.phases_ns, 0.0) | {"forward": 20.0 * MS, "backward": 30.0 * MS, "optimizer": MS}
    case = replace(make.with_steps(base(), phases_ns=phases), unused=noted)
    assert _measure_saved_ns(case, "needless_grad") == pytest.approx(0.5 * (30 + 0.12 * 20) * MS, rel=0.01)


def test_narrower_batches_save_attention_by_the_square_of_their_width() -> None:
    case = padded(0.8, longest=0.5, wide_fracs=(0.5, 0.4))
    assert _measure_saved_ns(case, "padding_waste") == pytest.approx((0.5 * 0.5 + 0.4 * 0.75) * 64 * MS, rel=0.01)


@pytest.mark.parametrize(("busy", "speaks"), [(0.9, True), (0.15, False)])
def test_on_a_device_padding_costs_what_its_kernels_take_and_no_step_is_promised(busy: float, speaks: bool) -> None:
    case = make.with_device(padded(0.6, longest=0.5, wide_fracs=(0.8, 0.0)), busy=busy)
    assert make.speaks(case, "padding_waste") is speaks
    if speaks:
        finding = make.find(case, "padding_waste")
        assert "The kernels, 90.0 % of the step, compute with all of it." in finding.text.measured
        assert finding.doubt_frac is None
        assert _measure_saved_ns(case, "padding_waste") == pytest.approx(0.4 * 0.9 * 64 * MS, rel=0.02)


@pytest.mark.parametrize(("stall", "said"), [(3.0, ", 32.0 ms of it because functions are compiled again"), (0.3, "")])
def test_the_verdict_says_how_much_of_computing_is_compiling(stall: float, said: str) -> None:
    case = make.split_step(recompiling(stall), optimizer=0.1)
    sentence = say_limit(case, find_bound(case))
    assert sentence.startswith("Compute-bound: ")
    assert f"update{said}" in sentence
    assert ("compiled again" in sentence) == bool(said)


def test_decoded_samples_are_expected_at_one_gigabyte_per_second() -> None:
    case = noted.decoding(100 * 50e6)  # 50 ms for each batch, and a twentieth of what decoding takes
    changed = make.find(case, "repeated_decode").what_if.change(case.loading.loop.model)
    left = changed.batches[0].wall_ns / case.loading.loop.model.batches[0].wall_ns
    assert left == pytest.approx(0.55)


def test_how_large_all_decoded_samples_are_follows_from_both_the_bytes_and_the_number_of_batches() -> None:
    case = noted.decoding(100 * 50e6)
    assert case.loading.batches is not None
    for lacking in (
        make.with_loader(case, length_batches=None),
        make.with_loading(case, batches=replace(case.loading.batches, bytes=0.0)),
    ):
        found = make.find(lacking, "repeated_decode")
        assert isinstance(found, Abstention)


def test_reductions_on_processors_may_slow_the_backward_too() -> None:
    """What they save is not known beforehand; on a device it is what waiting explains."""
    doubts = {}
    for kind in ("cpu", "cuda"):
        case = noted.accumulating(0.2)
        assert case.ranks.ddp is not None
        case = replace(case, ranks=replace(case.ranks, ddp=replace(case.ranks.ddp, device_type=kind)))
        finding = make.find(case, "no_sync_missing")
        doubts[kind] = finding.doubt_frac
        assert ("backward" in finding.what_if.touches) is (kind == "cpu")
    assert doubts == {"cpu": None, "cuda": 0.2}


def test_no_file_is_called_cached_where_none_was_opened() -> None:
    times = {"first_ns": 300.0 * MS, "later_ns": 100.0 * MS}
    assert make.speaks(noted.reading(**times), "cold_cache")
    assert not make.speaks(noted.reading(**times, files=0.0), "cold_cache")


@pytest.mark.parametrize(
    ("passages", "speaks"),
    [
        ({"positions": 38_000}, False),  # 5 % of what the model gets is padding
        ({"positions": 2_000, "width": 24}, True),
        ({"positions": 38_000, "padded": 5, "useful_frac": 0.5}, True),
        ({"positions": 38_000, "model": "Decoder"}, True),
        ({"positions": 0}, True),
    ],
)
def test_the_padding_of_a_model_is_that_of_all_lines_that_call_it(passages: dict[str, Any], speaks: bool) -> None:
    """The questions are half padding, and a loader gives them; the passages that the model gets, too, are full."""
    case = padded(0.5, positions=4_000, width=12)
    (questions,) = case.calls
    others = ModelCalls("Tagger", "train.py:32", 5, 5)
    case = replace(case, calls=(replace(questions, model="DataLoader"), questions, replace(others, **passages)))
    assert make.speaks(case, "padding_waste") == speaks
