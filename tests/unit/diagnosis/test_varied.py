"""What bounds a rank, and in which order its changes are told, if one fact changes: read the golden file of each case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from profiler_server.analysis.compare.comparison import Difference
from profiler_server.diagnosis.bottleneck import find_bottleneck, find_own_bottleneck
from profiler_server.diagnosis.changes import CodeChange, LineChange, SettingChange
from profiler_server.diagnosis.judging import hear_rules
from profiler_server.diagnosis.outcome import LessEvaluation, Outcome, Taken
from profiler_server.diagnosis.outcome_sentences import say_outcome
from profiler_server.diagnosis.ranking import rank_claims, split_findings, write_suggestion
from profiler_server.diagnosis.verdict import find_bound, say_verdict
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.loading import Bottleneck, MeasuredLoop, Readiness
from profiler_server.facts.machine import Host
from profiler_server.facts.pipeline import Making, OwnMaking, OwnStage, StageSummary, WorkerLoad
from profiler_server.facts.results import Suggestion
from tests.support import facts as make
from tests.support.cases import PLANTED, Plant, build_case_run, plan_of
from tests.support.diagnosing import Golden, measure
from tests.support.plants import A100
from tests.support.varying import write_facts, write_variants
from tests.unit.diagnosis.edges.base import base, starving
from tests.unit.diagnosis.test_judged import JUDGED, LOOPED, ROOMY, STARVED_UPDATE, WAITS, use


def short_of(cause: str, stage: str | None = None) -> Case:
    """Steps that wait for data, a quarter of their time for a processor, beside workers that use two cores."""
    case = make.split_step(starving(0.15), data_wait=0.15)
    case = make.with_loading(case, bottleneck=Bottleneck(stage, "Why.", cause))  # type: ignore[arg-type]
    return make.with_load(case, queued_frac=0.25, workers=2.0)


def on_device(busy: float, host_wait: float = 1.0, **shares: float) -> Case:
    return make.with_device(make.split_step(base(), **shares), busy, host_wait)


VERDICTS: Mapping[str, Callable[[], Case]] = {
    "input": lambda: make.split_step(starving(0.4), data_wait=0.4),
    "input of several": lambda: replace(
        make.split_step(starving(0.4), data_wait=0.4), other_loadings=(base().loading,)
    ),
    "receive": lambda: short_of("receiving", "collate"),
    "processor": lambda: make.split_step(short_of("processor"), data_wait=0.25),
    "little wait for processors": lambda: short_of("processor"),
    "overhead": lambda: make.split_step(base(), gap=0.1, tail=0.2, h2d=0.05),
    "overhead before": lambda: make.with_share(make.split_step(base(), gap=0.3), "gap", 0.3),
    "transfer": lambda: on_device(0.9, h2d=0.3),
    "communication": lambda: make.split_step(base(), communication=0.3),
    "launch": lambda: on_device(0.5),
    "launch between": lambda: on_device(0.5, 0.2),
    "overhead beside a device": lambda: replace(
        on_device(0.4, tail=0.3), device=replace(on_device(0.4).device, dispatch_frac=0.1)
    ),
    "compute": lambda: make.with_load(make.split_step(base()), queued_frac=0.3, workers=2.0),
    "compute on a device": lambda: on_device(0.95),
    "a device that was not seen": lambda: make.with_device(make.split_step(base()), summary=None),
    "a trace": lambda: make.with_manifest(on_device(0.6, data_wait=0.6), is_trace=True),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdict_follows_the_facts(name: str, golden: Golden) -> None:
    def tell(case: Case) -> tuple[str, ...]:
        bound = find_bound(case)
        share = f"{bound.share_frac:.3g}" if bound.share_frac is not None else "nothing known"
        kind = f"{bound.kind}, {bound.stage}, {share}"
        return kind, f"{bound.confidence_frac:.3g}, {bound.confidence}", say_verdict(case, bound, (), ())

    golden(f"facts/verdict-{name.replace(' ', '-')}", write_variants(VERDICTS[name](), tell))


@dataclass(frozen=True)
class Supply:
    """What `find_bottleneck` is given."""

    readiness: tuple[Readiness, ...]
    work_ns: Mapping[str, float]
    wait_frac: float
    load: WorkerLoad | None
    regular_frac: float | None


WORK = {"read": 40.0, "transform": 60.0, "collate": 10.0, "send": 5.0}
LATE, READY = (Readiness("worker_queue", late, 0.1, 0.2) for late in (0.5, 0.2))
PINNED = replace(LATE, queue="pin_queue")
SUPPLIES: Mapping[str, Supply] = {
    "late": Supply((LATE, PINNED), WORK, 0.3, None, 0.25),
    "late workers": Supply((LATE,), WORK, 0.3, WorkerLoad(0.6, 0.9), 0.25),
    "made late": Supply((LATE,), WORK, 0.3, WorkerLoad(0.9, 0.9, making=Making(0.5, 0.6)), 0.25),
    "pinned late": Supply((READY, PINNED), WORK, 0.3, WorkerLoad(0.3, 0.9), 0.25),
    "ready": Supply((READY,), WORK, 0.3, WorkerLoad(0.96, 0.3, making=Making(0.9, 0.1)), None),
    "handed over late": Supply((READY,), WORK, 0.3, WorkerLoad(0.7, 0.3), 0.25),
    "short of processors": Supply((READY,), WORK, 0.3, WorkerLoad(0.9, 0.9, 0.4), 0.25),
    "made by the training": Supply((), WORK, 0.3, WorkerLoad(0.0, None, own=OwnMaking(100.0, 90.0)), 0.25),
    "starts of epochs": Supply((LATE,), WORK, 0.3, WorkerLoad(0.9, 0.9), 0.07),
}


@pytest.mark.parametrize("name", SUPPLIES)
def test_the_limit_of_a_loader_follows_the_facts(name: str, golden: Golden) -> None:
    def tell(given: Supply) -> tuple[str, ...]:
        found = find_bottleneck(given.readiness, given.work_ns, given.wait_frac, given.load, given.regular_frac)
        return f"{found.stage}, {found.cause}, made {found.made_frac}", found.reason

    golden(f"facts/limit-{name.replace(' ', '-')}", write_variants(SUPPLIES[name], tell))


@dataclass(frozen=True)
class Stages:
    first: OwnStage
    middle: OwnStage
    last: OwnStage
    wait_frac: float = 0.0


def stage(name: str, busy: float, input_wait: float, output_wait: float, awaited: float = 0.0) -> OwnStage:
    return OwnStage(StageSummary(name, 2, 50, 1e6, busy, input_wait, output_wait), (), (), awaited)


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("busy", Stages(stage("a", 0.4, 0.0, 0.5), stage("b", 0.9, 0.05, 0.1), stage("c", 0.2, 0.6, 0.1))),
        ("held", Stages(stage("a", 0.4, 0.3, 0.5), stage("b", 0.6, 0.05, 0.3), stage("c", 0.2, 0.1, 0.3))),
        ("starved", Stages(stage("a", 0.3, 0.3, 0.1), stage("b", 0.2, 0.5, 0.1), stage("c", 0.1, 0.6, 0.1))),
        (
            "awaited",
            Stages(stage("a", 0.4, 0.0, 0.1, 0.3), stage("b", 0.3, 0.0, 0.0, 0.8), stage("c", 0.1, 0.6, 0.1), 0.9),
        ),
    ],
)
def test_the_limit_of_an_own_pipeline_follows_the_facts(name: str, stages: Stages, golden: Golden) -> None:
    def tell(given: Stages) -> tuple[str, ...]:
        found = find_own_bottleneck((given.first, given.middle, given.last), given.wait_frac)
        return f"{found.stage}, {found.cause}", found.reason

    golden(f"facts/own-{name}", write_variants(stages, tell))


@dataclass(frozen=True)
class Doubted:
    """The facts on which the doubt of a prediction depends."""

    loop: MeasuredLoop
    host: Host
    mean_ns: float
    wait_ns: float


def write_order(suggestions: Sequence[Suggestion]) -> tuple[str, ...]:
    return tuple(
        f"{said.rule} {said.severity} {(said.predicted_step_ns or 0) / 1e6:.3f}, {(said.predicted_low_ns or 0) / 1e6:.3f} "
        f"to {(said.predicted_high_ns or 0) / 1e6:.3f}, {'+'.join(said.shortens)}; {said.advice[-150:]}"
        for said in suggestions
    )


TWO = replace(plan_of(communication=60.0), ranks=2)
ORDERED: Mapping[str, Plant] = {
    "code or workers": ROOMY,
    "starving": Plant(STARVED_UPDATE, manifest=LOOPED),
    "doubtful": replace(PLANTED["slow_transform"], plan=WAITS, tables=use(0.5, 3.9)),
    "gap and communication": Plant(replace(TWO, phases_ms={**TWO.phases_ms, "tail": 30.0}), manifest=LOOPED),
}


@pytest.mark.parametrize("name", ORDERED)
def test_the_order_of_the_changes_follows_the_facts(name: str, tmp_path: Path, golden: Golden) -> None:
    case = measure(build_case_run(tmp_path / "run", ORDERED[name]))
    findings: list[tuple[Rule, Finding]] = hear_rules(case).findings

    def tell(given: Doubted) -> tuple[str, ...]:
        loading = replace(case.loading, loop=given.loop, wait_ns=given.wait_ns)
        changed = replace(case, loading=loading, host=given.host)
        changed = make.with_steps(changed, mean_ns=given.mean_ns)
        believed, doubted = split_findings(changed, findings)
        said = write_order([write_suggestion(changed, claim) for claim in rank_claims(changed, believed)])
        return (*said, f"doubted {' '.join(rule.id for rule, _ in doubted)}")

    given = Doubted(case.loading.loop, case.host, case.steps.mean_ns, case.loading.wait_ns)
    golden(f"facts/order-{name.replace(' ', '-')}", write_variants(given, tell))


PHASES = tuple(
    Difference(name, before * 1e6, after * 1e6, 0.5e6, 0.001, 0.002)
    for name, before, after in (("Tail", 30.0, 2.0), ("Backward", 40.0, 30.0), ("Forward", 10.0, 14.0))
)
GAP = Taken("python_gap", "Gap", 74e6, 65e6, 80e6, ("gap", "tail"))
EVALUATED = LessEvaluation("validation_share", "Evaluate less", 300e6, 200e6, 205e6, 150e6, 55e6)


@pytest.mark.parametrize("name", ["Tail", "Backward", "Forward"])
def test_the_outcome_follows_the_facts(name: str, golden: Golden) -> None:
    def tell(found: Outcome) -> tuple[str, ...]:
        besides = [{"phase": part.name, "change_ns": round(part.change_ns)} for part in found.besides]
        return (*say_outcome(found), f"{round(found.measured_ns)}, {found.is_in_range}, {besides}")

    phases = tuple(sorted(PHASES, key=lambda phase: phase.name != name))  # the facts of the first one are changed
    step = Difference("Step", 100e6, 66e6, 0.5e6, 0.001, 0.002)
    golden(f"facts/outcome-{name}", write_variants(Outcome(step, (GAP,), phases, EVALUATED, ("Slow rank",)), tell))


CHANGED = Outcome(
    Difference("Step", 502e6, 281e6, 0.5e6, 0.001, 0.002),
    unpredicted=("triplet_loss() takes 36.1 % of the step",),
    lines=(
        LineChange("triplet_loss()", "triplet_loss()", 181e6, 0.0),
        LineChange("normalise()", "normalise()", 60e6, 9e6),
        LineChange("train.py:31 `loss = pairs(points)`", "train.py:31", 0.0, 14e6),
    ),
    code=(CodeChange("train.py", 2, 9),),
    settings=(SettingChange("num_workers", "0", "4"), SettingChange("--lr", "0.1", "0.2")),
    least_step_ns=321e6,
)
CHANGES: Mapping[str, Outcome] = {
    "lines of advice": CHANGED,
    "advice without lines": replace(CHANGED, unpredicted=(), silent=("Every 40th step stalls", "Other"), lines=()),
    "lines": replace(CHANGED, unpredicted=(), code=(), settings=()),
    "loading": replace(CHANGED, unpredicted=(), lines=(LineChange("read()", "read()", 60e6, 2e6, True),)),
    "lines that were hardly sampled": replace(
        CHANGED,
        unpredicted=(),
        lines=(LineChange("a()", "a()", 60e6, 9e6, False, True), LineChange("b()", "b()", 9e6, 60e6, False, True)),
    ),
    "settings": replace(CHANGED, unpredicted=(), lines=()),
    "settings without effect": replace(
        CHANGED, unpredicted=(), lines=(), step=Difference("Step", 502e6, 500e6, 5e6, 0.4, 0.4)
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changed_is_said_beside_the_step(name: str, golden: Golden) -> None:
    golden(f"told/changed-{name.replace(' ', '-')}", "".join(f"{line}\n" for line in say_outcome(CHANGES[name])))


def test_several_changes_at_once_are_not_told_apart() -> None:
    found = Outcome(PHASES[0], (GAP, replace(GAP, title="Other")))
    assert say_outcome(found) == (
        "Taken at once: “Gap”, “Other”. Their gains cannot be told apart; the step is 2.00 ms now.",
    )
    assert (found.is_in_range, found.error_frac) == (None, None)


MEASURED: Mapping[str, Plant] = {
    **{
        name: PLANTED[name]
        for name in (
            *("slow_sampler", "small_files", "watched_input", "ipc_bound", "pin_thread", "worker_restart", "shift"),
            *("no_sync_missing", "slow_rank_loader", "drift", "workers_take_processors", "checkpoint_stall"),
            *("oversubscribed_workers", "shallow_prefetch", "periodic_stall", "validation_share"),
        )
    },
    **{name: JUDGED[name] for name in ("a longer trace without workers", "only inference", "tracebacks by operators")},
    "memory on a device": Plant(plan_of(h2d=20.0), manifest={"devices": (A100,)}),
}


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What is measured of a healthy rank."""
    return dict(write_facts(measure(build_case_run(tmp_path_factory.mktemp("usual") / "run", Plant()))))


@pytest.mark.parametrize("name", MEASURED)
def test_a_rank_is_measured(name: str, usual: Mapping[str, str], tmp_path: Path, golden: Golden) -> None:
    found = dict(write_facts(measure(build_case_run(tmp_path / "run", MEASURED[name]))))
    told = [f"{path}: {value}\n" for path, value in found.items() if usual.get(path) != value]
    told += [f"no {path}\n" for path in usual if path not in found]
    golden(f"facts/measured-{name.replace(' ', '-')}", "".join(told))
