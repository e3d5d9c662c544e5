"""The keys and types of `report --json` that others rely on."""

from __future__ import annotations

from typing import Any

OPTIONAL = "optional"
NUMBER = (int, float)
TIMES = dict.fromkeys(("total_ns", "computation_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns"), int)
CAUSE = {"name": str, "excess_ns": int, "share_frac": NUMBER}
STACK_PART = {
    "name": str,
    "samples": int,
    "functions": [
        {
            **dict.fromkeys(("function", "caller", "file"), str),
            **dict.fromkeys(("line", "samples"), int),
            **dict.fromkeys(("share_frac", "low_frac", "high_frac"), NUMBER),
            "is_own_line": bool,
        }
    ],
}
SHAPE: dict[str, Any] = {
    "schema_version": int,
    "run": {
        **dict.fromkeys(("id", "name", "state", "source", "host", "created"), str),
        "is_recovered": bool,
        "world_size": int,
        "torch": (str, type(None)),
        "devices": [str],
    },
    "ranks": [
        {
            "rank": int,
            "unit": str,
            "completeness": (str, type(None)),
            "steps": {
                "count": int,
                "first": int,
                "last": int,
                "excluded": [int],
                "duration_ns": dict.fromkeys(
                    ("count", "mean", "std", "min", "p50", "p90", "p95", "p97", "p99", "p999", "max"), int
                ),
                "percentiles_missing": (str, type(None)),
            },
            "outliers": [{"step": int, "duration_ns": int, "ratio": NUMBER, "cause": str, "text": str}],
            "interruptions": [
                {
                    **dict.fromkeys(("kind", "name"), str),
                    "reason": (str, type(None)),
                    **dict.fromkeys(("count", "total_ns", "longest_ns"), int),
                }
            ],
            "phases": [{"name": str, "mean_ns": int, "share_frac": NUMBER}],
            "categories": {
                OPTIONAL: True,
                **dict.fromkeys(
                    ("kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu_exec", "other"), int
                ),
            },
            "requests": {
                OPTIONAL: True,
                **dict.fromkeys(("count", "failed", "left_out", "most_at_once", "threads", "calls_max"), int),
                **dict.fromkeys(("per_s", "calls_mean"), NUMBER),
                "duration_ns": (dict, type(None)),
                "call_ns": (dict, type(None)),
            },
            "other_calls": {OPTIONAL: True, "count": int, "duration_ns": (dict, type(None))},
            "start_up": {
                OPTIONAL: True,
                "total_ns": int,
                "is_process": bool,
                "samples": int,
                "parts": [
                    {
                        **dict.fromkeys(("cause", "place", "line"), str),
                        **dict.fromkeys(("duration_ns", "low_ns", "high_ns"), int),
                    }
                ],
            },
            "tokens": {
                OPTIONAL: True,
                **dict.fromkeys(("model", "place"), str),
                "looks": int,
                **dict.fromkeys(("real_frac", "per_sample"), NUMBER),
                **dict.fromkeys(("trained_frac", "per_s", "real_per_s"), (*NUMBER, type(None))),
            },
            "mfu": {
                OPTIONAL: True,
                **dict.fromkeys(("missing", "device", "source"), str),
                "steps": int,
                "step_ns": int,
                "precisions": (dict, type(None)),
                **dict.fromkeys(("frac", "flops_per_step", "peak_flops_per_s", "covered_frac"), (*NUMBER, type(None))),
            },
            "device": {
                OPTIONAL: True,
                **TIMES,
                "steps_ns": int,
                "linked_only": TIMES,
                **dict.fromkeys(
                    ("utilization_frac", "sm_efficiency_frac", "occupancy_frac", "tensor_core_frac"),
                    (*NUMBER, type(None)),
                ),
                "idle_causes_ns": dict.fromkeys(("host_wait", "kernel_wait", "other"), int),
            },
            "operators": [
                {
                    **dict.fromkeys(("name", "type"), str),
                    **dict.fromkeys(("count", "total_ns", "self_ns", "device_total_ns", "device_self_ns"), int),
                }
            ],
            "kernels": [{"name": str, **dict.fromkeys(("count", "total_ns", "mean_ns", "min_ns", "max_ns"), int)}],
            "queues": [
                {
                    "name": str,
                    "capacity": int,
                    **dict.fromkeys(("mean_depth", "usage_frac", "empty_frac"), NUMBER),
                    "samples": int,
                }
            ],
            "stacks": {
                OPTIONAL: True,
                "phases": [STACK_PART],
                "stages": [{**STACK_PART, "loader": (int, type(None))}],
            },
            "loaders": [{"loader": int, "dataset": str, "num_workers": int, "feeds_steps": bool}],
            "stages": [
                {
                    "name": str,
                    **dict.fromkeys(("replicas", "count", "mean_ns"), int),
                    **dict.fromkeys(("busy_frac", "input_wait_frac", "output_wait_frac"), (*NUMBER, type(None))),
                    "loader": (int, type(None)),
                }
            ],
        }
    ],
    "bound_by": {
        "kind": str,
        "stage": (str, type(None)),
        "share_frac": (*NUMBER, type(None)),
        "confidence_frac": NUMBER,
        "confidence": str,
    },
    "suggestions": [
        {
            **dict.fromkeys(
                ("rule", "title", "severity", "measured", "threshold", "advice", "change", "fix", "condition"), str
            ),
            **dict.fromkeys(("predicted_step_ns", "predicted_low_ns", "predicted_high_ns"), (int, type(None))),
            "least_step_ns": (int, type(None)),
            "evidence": [{"page": str, "query": str, "text": str}],
            "settings": dict,
            "shortens": [str],
            "saved_per_step_frac": NUMBER,
        }
    ],
    "tried": dict,
    "abstained": [{"rule": str, "missing": str, "how": str}],
    "end": (dict, type(None)),
    "attempts": [{"attempt": int, "path": str, "steps": int, "end": (dict, type(None)), "is_this": bool}],
    "job_time": {
        OPTIONAL: True,
        "sentence": str,
        **dict.fromkeys(("useful_low_frac", "useful_high_frac"), NUMBER),
        **dict.fromkeys(("total_ns", "kept_low_ns", "kept_high_ns", "steps_ns", "saving_ns"), int),
        **dict.fromkeys(("evaluation_ns", "start_up_ns", "between_ns", "other_ns"), int),
        "repeated_steps": (int, type(None)),
        "unknown": [int],
    },
    "hang": {OPTIONAL: True, **dict.fromkeys(("sentence", "cause", "group", "name"), str)},
    "judgement": {
        OPTIONAL: True,
        **dict.fromkeys(("sentence", "evidence", "verdict", "source"), str),
        **dict.fromkeys(("ranks_read", "gain_ns", "meetings", "steps", "step_ns"), int),
        "straggler": {
            **dict.fromkeys(("rank", "others", "own_ns", "others_ns", "phase_ns", "phase_others_ns", "gain_ns"), int),
            **dict.fromkeys(("behind_frac", "late_frac", "last_frac"), NUMBER),
            **dict.fromkeys(("is_slow", "is_unsure"), bool),
            "phase": str,
            "causes": [CAUSE],
            "longest": (list, type(None)),
            "stretch": (dict, type(None)),
        },
        "rotation": {
            OPTIONAL: True,
            **dict.fromkeys(("entropy_frac", "waited_frac"), NUMBER),
            "waited_ns": int,
            "causes": [CAUSE],
            "is_one_phase": bool,
        },
        **dict.fromkeys(("blame_ns", "last_frac"), (dict, type(None))),
        **dict.fromkeys(("least_frac", "uneven_correlation"), (*NUMBER, type(None))),
        **{name: [int] for name in ("residual_ns", "left_out", "also_slow", "culprits")},
        "is_hidden": bool,
        "apart_ns": (dict, type(None)),
        "pause": (dict, type(None)),
        **dict.fromkeys(("handover", "uneven_work"), (dict, type(None))),
        "strangers": (dict, type(None)),
        "garbage": (dict, type(None)),
        "stages": int,
        "transfer_ns": (int, type(None)),
        "heavy_stage": {
            OPTIONAL: True,
            "ranks": [int],
            **dict.fromkeys(("stage", "own_ns", "others_ns", "gain_ns"), int),
        },
    },
    "slow_collective": {
        OPTIONAL: True,
        **dict.fromkeys(("sentence", "group", "name"), str),
        **dict.fromkeys(("number", "count", "bytes", "steps", "transfer_ns", "expected_ns"), int),
    },
    "history": {
        OPTIONAL: True,
        "since": str,
        **dict.fromkeys(("before_ns", "after_ns", "before", "after"), int),
        **dict.fromkeys(("change_frac", "chance"), float),
    },
    "outcome": {
        OPTIONAL: True,
        "earlier": str,
        **{name: [str] for name in ("sentences", "mended", "unpredicted", "silent")},
        **dict.fromkeys(("before_step_ns", "measured_step_ns", "judged_step_ns"), int),
        **dict.fromkeys(("taken", "besides"), list),
        "is_in_range": (bool, type(None)),
        "error_frac": (*NUMBER, type(None)),
        "evaluation": (dict, type(None)),
        "least_step_ns": (int, type(None)),
        "lines": [{"name": str, **dict.fromkeys(("before_ns", "after_ns"), int), "is_loading": bool, "is_bound": bool}],
        "code": [{"file": str, "added": int, "removed": int}],
        "settings": [dict.fromkeys(("name", "before", "after"), str)],
    },
    "what_if": {
        OPTIONAL: True,
        **dict.fromkeys(("slowdown", "waste_frac", "discrepancy_frac"), NUMBER),
        **dict.fromkeys(("by_operation", "by_rank", "mend_rank_gain_ns"), dict),
        "by_stage": (dict, type(None)),
        **dict.fromkeys(("worker_share", "stage_share"), (*NUMBER, type(None))),
        "method": str,
    },
    "overhead": {
        "training_thread_ns_per_step": int,
        "share_frac": NUMBER,
        "how": str,
        "training_thread_low_ns_per_step": (int, type(None)),
        "training_thread_high_ns_per_step": (int, type(None)),
    },
    "warnings": [str],
}


def check_report(report: dict[str, Any]) -> None:
    """Compare a report with its shape."""
    check(report, SHAPE)


def check(value: Any, shape: Any, where: str = "report") -> None:
    """Compare a value with a shape: the same keys and no others, the same types all the way down."""
    if isinstance(shape, dict):
        if value is None and shape.get(OPTIONAL):
            return
        assert isinstance(value, dict), where
        assert set(value) == set(shape) - {OPTIONAL}, where
        for name, inner in value.items():
            check(inner, shape[name], f"{where}.{name}")
    elif isinstance(shape, list):
        assert isinstance(value, list), where
        for entry in value:
            check(entry, shape[0], f"{where}[]")
    else:
        assert isinstance(value, shape), f"{where} is {value!r}"
        assert isinstance(value, bool) is (shape is bool) or shape == (bool, type(None)), where
