"""Each setting says what it governs; what a change can gain at most decides what is tried first and what is worth a look."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from collector.format.phases import COMPUTING
from collector.format.switches import SWITCHES
from collector.launch.trying.applying import KNOBS, apply_change
from profiler_server.diagnosis.judging import find_rules, judge
from profiler_server.diagnosis.knobs import PROMISED, Change, list_changes
from profiler_server.facts.case import Case, Hotspot
from profiler_server.facts.steps import Kinds, UnusedGradients
from tests.support import facts as make
from tests.support.diagnosing import Golden
from tests.support.varying import write_variants
from tests.unit.diagnosis.edges.base import base
from tests.unit.diagnosis.edges.lines import spot, with_lines, work

ADAM = {"name": "Adam", "parameters": 1000}


def knows(case: Case | None = None, kinds: Kinds | None = None, **facts: Any) -> Case:
    """Return the case with kinds of work and facts."""
    case = make.with_steps(case or base(), kinds=kinds or Kinds())
    return make.with_manifest(case, facts=facts)


def labels(case: Case, knob: str, **asked: Any) -> list[str]:
    return [each.label for each in list_changes(case, asked) if each.knob == knob]


def looks(case: Case) -> list[str]:
    """Return what is said of settings that are worth a look."""
    return [found.text.measured for found in make.find(case, "worth_trying")]


def with_flash_off() -> Case:
    return make.with_manifest(base(), switched={"flash_sdp": "torch.backends.cuda.enable_flash_sdp(True)"})


def computing(threads: int, **load: float) -> Case:
    return make.with_load(make.with_manifest(base(), torch_threads=threads), **load)


def test_settings_that_the_figures_leave_hopeless_are_not_tried() -> None:
    idle = make.with_loader(base(), num_workers=0)
    assert labels(make.with_wait(idle, 0.02), "num_workers") == []
    several = [f"num_workers={count}, persistent_workers=True" for count in (4, 2, 1)]
    assert labels(make.with_wait(idle, 0.4), "num_workers") == several
    assert labels(base(), "num_workers") == [], "two workers beside two threads have a core each"
    fewer = labels(make.with_loader(base(), num_workers=8), "num_workers")
    assert fewer == ["num_workers=0", "num_workers=4", "num_workers=2", "num_workers=1"]
    assert labels(computing(1), "threads") == ["4 threads", "2 threads"]
    assert labels(knows(kinds=Kinds(large_frac=1.0)), "threads") == ["4 threads"]
    small = knows(kinds=Kinds(large_frac=0.2))
    assert labels(small, "threads") == ["1 thread", "4 threads"]
    assert labels(make.with_load(small, others=1.0), "threads") == ["4 threads"], "a quarter of four cores is taken"
    assert labels(knows(optimizers=[{**ADAM, "foreach": True}]), "update") == ["fused=True"]
    assert labels(knows(optimizers=[{**ADAM, "fused": True}]), "update") == []
    assert labels(knows(), "anomaly") == []
    assert labels(replace(base(), unused=UnusedGradients(2, 2, 1)), "freeze") == [], "another optimizer has them"
    assert labels(knows(kinds=Kinds(differentiates_twice=True)), "compile") == []
    assert labels(knows(kinds=Kinds(convolutions_frac=0.5, has_channels_last=True)), "channels_last") == []


def test_subnormal_numbers_are_flushed_on_a_processor_only() -> None:
    (flushed,) = (each for each in list_changes(base()) if each.knob == "flush_denormal")
    assert flushed.bound_frac == pytest.approx(0.25 * base().steps.share(*COMPUTING))
    assert labels(make.with_device(base()), "flush_denormal") == []


def test_what_can_gain_most_comes_first() -> None:
    case = make.with_wait(computing(1), 0.1)
    first = ["bfloat16 autocast", "torch.compile", "4 threads"]
    assert [each.label for each in list_changes(case)][:3] == first
    assert list_changes(make.with_wait(computing(1), 0.95))[0].label == "num_workers=0"
    assert list_changes(make.with_manifest(case, facts={"anomaly_mode": True}))[0].label == "anomaly detection off"


def test_the_arguments_that_the_advice_names_come_first() -> None:
    case = make.with_wait(make.with_loader(base(), num_workers=0), 0.4)
    assert labels(case, "num_workers", num_workers=2)[0] == "num_workers=2, persistent_workers=True"
    late = make.with_wait(base(), 0.4)
    assert labels(late, "prefetch") == ["prefetch_factor=8"]
    assert labels(late, "prefetch", prefetch_factor=16) == ["prefetch_factor=16"]
    assert (labels(late, "in_order"), labels(late, "in_order", in_order=False)) == ([], ["in_order=False"])


def know_everything(is_on_device: bool, is_own_attention: bool = True) -> Case:
    """Return a case with every setting at a value that can be changed, and work of every kind. With `is_own_attention`
    a kernel of PyTorch falls back to matrices of scores, else modules make these matrices.
    """
    facts = {
        "anomaly_mode": True,
        "ddp": {"x": 1},
        "matmul_precision": "highest",
        "optimizers": [{"name": "SGD", "parameters": 100, "dtypes": {"float64": 80, "float32": 20}}],
    }
    kinds = Kinds(
        0.3, False, 0.3, is_own_attention, lookups_frac=0.3, table_parameters=50, rows_frac=0.01, kept_frac=0.2
    )
    block = spot(
        function="Block.forward",
        phases={"forward": 0.1, "backward": 0.2},
        calls={} if is_own_attention else {"torch.MultiheadAttention.forward": 0.3},
    )
    waiting = make.with_wait(with_lines(block), 0.5)
    waiting = make.with_manifest(waiting, switched={each.name: each.code for each in SWITCHES})
    case = replace(knows(waiting, kinds, **facts), unused=UnusedGradients(2, 1, 1))
    return make.with_device(replace(case, ranks=replace(case.ranks, world_size=2))) if is_on_device else case


def list_everything() -> list[Change]:
    cases = know_everything(False), know_everything(True), know_everything(False, False)
    return [change for case in cases for change in list_changes(case, {"in_order": False})]


@pytest.mark.parametrize("is_on_device", [False, True])
def test_the_changes_follow_the_facts(is_on_device: bool, golden: Golden) -> None:
    def tell(case: Case) -> tuple[str, ...]:
        return tuple(
            f"{each.knob} {each.label} {each.bound_frac:.3g} {each.look} {'slow' if each.is_slow else ''}"
            for each in list_changes(case)
        )

    name = f"knobs{'-on-a-device' if is_on_device else ''}"
    golden(f"facts/{name}", write_variants(know_everything(is_on_device), tell))


def test_every_change_can_be_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    names = {name for each in list_everything() for name in each.change}
    assert {name for name in names if not name.startswith("loader.")} == KNOBS.keys()
    with pytest.raises(ValueError, match="no knob"):
        apply_change({"nonsense": 1})


def test_what_promises_a_step_is_a_rule_and_its_change_one_of_the_table() -> None:
    assert {rule.id for rule in find_rules().rules} >= PROMISED.keys()
    changes = [each.change for each in list_everything()]
    assert [
        rule for rule, change in PROMISED.items() if not any(change.items() <= each.items() for each in changes)
    ] == []


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (
            knows(kinds=Kinds(0.61, has_channels_last=False)),
            "Convolutions take 61.0 % of the step and run in the contiguous layout. Worth trying: `channels_last` "
            "(`stepscope run --try`).",
        ),
        (
            make.with_share(knows(optimizers=[ADAM]), "optimizer", 0.3),
            "The update takes 30.0 % of the step and runs without `fused`. Worth trying: `fused=True` "
            "(`stepscope run --try`).",
        ),
        (
            computing(1, process=1.0),
            "Operators that can use several threads run on 1 thread, and 4 threads would have a core each. That could "
            "save 46.9 % of the step. Worth trying: `torch.set_num_threads(4)` (`stepscope run --try`).",
        ),
        (
            make.with_device(knows(kinds=Kinds(convolutions_frac=0.5), cudnn_benchmark=False)),
            "Convolutions take 50.0 % of the step, and torch.backends.cudnn.benchmark is off. Worth trying: "
            "`torch.backends.cudnn.benchmark = True` (`stepscope run --try`).",
        ),
        (
            knows(kinds=Kinds(slow_products_frac=0.61)),
            "Large products of matrices in float32 take 61.0 % of the step, at less than 10 operations per ns. Subnormal "
            "numbers slow processors down like that. Worth trying: `torch.set_flush_denormal(True)` (`stepscope run --try`).",
        ),
        (
            make.with_manifest(base(), facts={"subnormals": {"read": 4000, "subnormal": 100}}),
            "2.5 % of the numbers that were read of what the forward keeps for backward are subnormal: not zero, and below "
            "1e-38. 96.9 % of the step are spent in forward, backward and update. Worth trying: `torch.set_flush_denormal(True)` "
            "(`stepscope run --try`).",
        ),
        (
            knows(with_flash_off(), Kinds(scores_frac=0.4, is_fallback=True)),
            "Attention writes its matrix of scores, which takes 40.0 % of the step: enable_flash_sdp is off. Worth "
            "trying: `torch.backends.cuda.enable_flash_sdp(True)` (`stepscope run --try`).",
        ),
        (
            knows(
                with_lines(spot(calls={"torch.MultiheadAttention.forward": 0.2}, share_frac=0.01)),
                Kinds(scores_frac=0.4),
            ),
            "nn.MultiheadAttention makes the matrix of its weights, and work on the matrix takes 40.0 % of the step. Worth "
            "trying: `need_weights=False` (`stepscope run --try`).",
        ),
        (
            knows(make.with_manifest(base(), switched={"mkldnn": "torch.backends.mkldnn.enabled = True"})),
            "This run has changed a switch of PyTorch that affects up to 87.5 % of the step. Worth trying: "
            "`torch.backends.mkldnn.enabled = True` (`stepscope run --try`).",
        ),
        (
            knows(kinds=Kinds(kept_frac=0.4)),
            "Filling gradients with zeros and adding new ones to them takes 40.0 % of the step. Worth trying: "
            "`set_to_none=True` (`stepscope run --try`).",
        ),
        (
            knows(kinds=Kinds(scores_frac=0.4)),
            "A product, a softmax and a product on matrices of attention scores take 40.0 % of the step. Worth trying: "
            "`scaled_dot_product_attention`.",
        ),
        (
            knows(kinds=Kinds(lookups_frac=0.4, rows_frac=0.01, table_parameters=500), optimizers=[ADAM]),
            "Gradients of embeddings and their update take 44.7 % of the step, for 1.0 % of the rows at most. Worth "
            "trying: `sparse=True`.",
        ),
        (
            knows(
                with_lines(spot(function="Net.forward", work=work(calls=300))),
                Kinds(pointwise_calls=160.0, large_frac=0.3),
            ),
            "The backward calls 160 small elementwise operators in each step; forward and backward without their large "
            "operators take 57.5 % of it. Worth trying: `torch.compile` (`stepscope run --try`).",
        ),
        (
            make.with_batches(make.with_wait(base(), 0.4), 10e6),
            "The step waits for data 40.0 % of its time. At most half of this wait is spent making batches. "
            "Worth trying: `num_workers=0` (`stepscope run --try`).",
        ),
    ],
)
def test_a_setting_that_governs_much_is_worth_a_look(case: Case, said: str) -> None:
    assert looks(case) == [said]


@pytest.mark.parametrize(
    "case",
    [
        base(),
        knows(kinds=Kinds(0.61, has_channels_last=None)),
        knows(kinds=Kinds(0.61, has_channels_last=True)),
        make.with_share(knows(optimizers=[{**ADAM, "fused": True}]), "optimizer", 0.3),
        make.with_share(knows(optimizers=[{"name": "Rprop"}]), "optimizer", 0.3),
        make.with_device(make.with_share(knows(optimizers=[ADAM]), "optimizer", 0.3)),
        computing(1, process=1.0, others=3.0),
        computing(2, process=2.0),
        make.with_share(knows(optimizers=[{"name": "SGD", "momentum": False}]), "optimizer", 0.3),
        make.with_steps(computing(1, process=1.0), kinds=Kinds(large_frac=0.1)),
        knows(with_flash_off()),
        knows(kinds=Kinds(scores_frac=0.4, is_fallback=True)),
        knows(kinds=Kinds(scores_frac=0.4, drops_scores=True)),
        knows(kinds=Kinds(lookups_frac=0.4, rows_frac=0.5, table_parameters=500), optimizers=[ADAM]),
        knows(with_lines(spot(function="loss", work=work(calls=300))), Kinds(pointwise_calls=160.0, large_frac=0.3)),
        knows(kinds=Kinds(pointwise_calls=160.0, large_frac=0.3)),
        make.with_batches(make.with_wait(base(), 0.4), 40e6),
    ],
)
def test_a_setting_at_its_usual_best_is_not(case: Case) -> None:
    assert looks(case) == []


def test_a_setting_and_a_line_are_listed_and_no_more() -> None:
    case = with_lines(spot(function="mine"), spot(function="another"))
    case = make.with_steps(case, kinds=Kinds(0.61, has_channels_last=False))
    found = [entry for entry in judge(case).suggestions if entry.is_look]
    assert [entry.rule for entry in found] == ["worth_trying", "hot_line"]
    assert found[0].least_step_ns == pytest.approx(0.39 * case.steps.mean_ns)


def test_a_setting_that_a_rule_predicts_is_not_worth_a_look_too() -> None:
    case = make.with_share(knows(optimizers=[{**ADAM, "tensors": 400}]), "optimizer", 0.3)
    assert looks(case)
    assert [entry.rule for entry in judge(case).suggestions] == ["optimizer_loop"]


@pytest.mark.parametrize(
    ("kinds", "update_frac", "rule"),
    [
        (Kinds(lookups_frac=0.2, rows_frac=0.01, table_parameters=340), 0.3, "worth_trying"),
        (Kinds(lookups_frac=0.2, rows_frac=0.01, table_parameters=320), 0.3, "optimizer_loop"),
        (Kinds(lookups_frac=0.2, rows_frac=0.50, table_parameters=900), 0.3, "optimizer_loop"),
        (Kinds(lookups_frac=0.05, rows_frac=0.01, table_parameters=900), 0.17, "worth_trying"),
        (Kinds(lookups_frac=0.04, rows_frac=0.01, table_parameters=900), 0.17, "optimizer_loop"),
    ],
    ids=["rows unread", "mostly other parameters", "many rows read", "much of the step", "little of the step"],
)
def test_an_update_of_rows_that_no_step_reads_is_no_fault_of_the_loop_over_tensors(
    kinds: Kinds, update_frac: float, rule: str
) -> None:
    case = make.with_share(knows(kinds=kinds, optimizers=[{**ADAM, "tensors": 400}]), "optimizer", update_frac)
    assert judge(case).suggestions[0].rule == rule


@pytest.mark.parametrize(
    ("line", "taken_frac", "rules"),
    [
        (spot(0.5, work=work(calls=300)), 0.3, ["hot_line", "worth_trying"]),
        (spot(0.5, work=work(calls=300)), 0.7, ["worth_trying", "hot_line"]),
        (spot(0.5), 0.3, ["worth_trying", "hot_line"]),
    ],
    ids=["the line gains more", "the setting gains more", "the line says only where"],
)
def test_what_can_gain_most_is_looked_at_first_unless_it_says_no_change(
    line: Hotspot, taken_frac: float, rules: list[str]
) -> None:
    case = with_lines(line)
    case = make.with_steps(case, kinds=Kinds(taken_frac, has_channels_last=False))
    assert [entry.rule for entry in judge(case).suggestions if entry.is_look] == rules


@pytest.mark.parametrize(("others", "is_look"), [(0.9, True), (1.1, False)])
def test_slow_products_beside_other_programs_show_no_subnormals(others: float, is_look: bool) -> None:
    case = make.with_load(knows(kinds=Kinds(slow_products_frac=0.61)), others=others)
    (change,) = (each for each in list_changes(case) if each.knob == "flush_denormal")
    assert bool(change.look) is is_look
