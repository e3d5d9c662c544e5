"""The JSON keys of objects that other rooms compute. An object gets these keys in this order, and no others.

`report --json`, `compare --json` and the HTTP API use the same keys. A new field of such an object becomes a key only
when `PARTS` names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VERSION = 1
"""The `schema_version` of a report. It is raised when a reader of the last version would misread a report."""

_TIMES = "total_ns computation_ns exposed_communication_ns exposed_copy_ns idle_ns"
_COST = "training_thread_ns_per_step share_frac how"
PARTS: Mapping[str, str] = {
    # of a rank
    "StepSummary": "count first last excluded duration_ns",
    "Distribution": "count mean std min p50 p90 p95 p97 p99 p999 max",
    "DeviceTimes": _TIMES,
    "DeviceSummary": f"{_TIMES} linked_only utilization_frac sm_efficiency_frac occupancy_frac tensor_core_frac "
    "idle_causes_ns steps_ns",
    "IdleCauses": "host_wait kernel_wait other",
    "OperatorRow": "name type count total_ns self_ns device_total_ns device_self_ns",
    "KernelRow": "name count total_ns mean_ns min_ns max_ns",
    "Part": "name samples functions",
    "NamedFunction": "function caller file line samples share_frac low_frac high_frac is_own_line",
    "Requests": "count failed left_out duration_ns per_s most_at_once threads calls_mean calls_max call_ns",
    "OtherCalls": "count duration_ns",
    "QueueSummary": "name capacity mean_depth usage_frac empty_frac samples",
    "StageSummary": "name replicas count mean_ns busy_frac input_wait_frac output_wait_frac loader",
    "StartUp": "total_ns is_process samples parts",
    "StartPart": "cause duration_ns low_ns high_ns place line",
    "TokenRate": "model place looks real_frac trained_frac per_sample per_s real_per_s",
    "ModelUse": "frac missing flops_per_step step_ns peak_flops_per_s precisions device source steps covered_frac",
    # the diagnosis
    "BoundBy": "kind stage share_frac confidence_frac confidence",
    "Suggestion": "rule title severity measured threshold advice change predicted_step_ns predicted_low_ns "
    "predicted_high_ns evidence settings fix shortens saved_per_step_frac least_step_ns condition",
    "Evidence": "page query text",
    "Trial": "sentence gain_frac low_frac high_frac runs",
    "Abstention": "rule missing how",
    # of all ranks
    "RankComparison": "source meetings steps step_ns blame_ns last_frac least_frac residual_ns left_out is_hidden "
    "transfer_ns stages uneven_correlation garbage pause",
    "LateRank": "rank own_ns others_ns phase phase_ns phase_others_ns others late_frac gain_ns causes",
    "Cause": "name excess_ns share_frac",
    "Garbage": "pause_ns chance gain_ns",
    "Pause": "rank step waited_ns count steps mean_ns causes",
    "Stretch": "first last late_ns is_from_start in_time",
    "Strangers": "ranks others by",
    "Handover": "step before before_ns after after_ns gain_ns",
    "HeavyStage": "stage own_ns others_ns gain_ns",
    "UnevenWork": "gain_ns",
    "Turns": "causes entropy_frac is_one_phase",
    "SlowCall": "group name number count bytes transfer_ns steps expected_ns",
    "JobSlowdown": "slowdown waste_frac discrepancy_frac by_operation by_rank by_stage worker_share stage_share "
    "mend_rank_gain_ns method",
    # of all attempts of the job, and how it ended
    "JobTime": "total_ns useful_low_frac useful_high_frac kept_low_ns kept_high_ns repeated_steps steps_ns saving_ns "
    "evaluation_ns start_up_ns between_ns other_ns unknown",
    "Hang": "cause group sequence name missing waiting",
    "LeftOut": "ranks meeting then",
    "Mismatch": "ranks called meeting then",
    "Raised": "ranks error steps lost",
    "OutOfMemory": "ranks error steps lost rank shortage",
    "Shortage": "device requested_bytes total_bytes free_bytes process_bytes allocated_bytes unallocated_bytes place "
    "function module phase parameter_bytes gradient_bytes optimizer_bytes tensors",
    "HeldTensor": "bytes name function shape dtype count",
    "Killed": "death steps lost ended",
    "CutOff": "ranks signal steps",
    "Severed": "ranks error steps",
    "Meeting": "number group step call entered",
    "Collective": "name bytes dtype",
    "Death": "rank signal exit_code",
    # of two runs, or of two lists of runs
    "Difference": "name a_ns b_ns noise_ns p corrected_p change_ns is_clear is_unsure",
    "Taken": "rule title predicted_step_ns predicted_low_ns predicted_high_ns",
    "LessEvaluation": "rule title before_ns predicted_ns measured_ns evaluation_before_ns evaluation_ns",
    "LineChange": "name before_ns after_ns is_loading is_bound",
    "CodeChange": "file added removed",
    "SettingChange": "name before after",
    "Verdict": "kind reason base new estimate parts cautions max_slowdown leading pairs mean_change_ns "
    "rank compared_ns lines",
    "LineShare": "part a_place b_place text",
    "Estimate": "change low high p detectable scatter least most",
    "PartChange": "name change_ns p",
    "PairChange": "base new base_ns new_ns change",
    # of the memory
    "LiveMemory": "at_ns step allocated_bytes reserved_bytes known_bytes before_bytes count blocks has_addresses",
    "LiveBlock": "address size_bytes operator born_ns step shape dtype module",
    # of the run
    "LevelChange": "change_frac before_ns after_ns before after chance",
    "Overhead": f"{_COST} training_thread_low_ns_per_step training_thread_high_ns_per_step",
}


def pick(value: Any) -> Any:
    """Return a value as plain data. An object keeps only the keys that `PARTS` lists for its type, in that order."""
    if isinstance(value, Mapping):
        return {key: pick(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [pick(inner) for inner in value]
    names = PARTS.get(type(value).__name__)
    return value if names is None else {name: pick(getattr(value, name)) for name in names.split()}


def spell_out(value: Any, name: str = "") -> Any:
    """Return a value in the form of the report's JSON: keys are texts, and times are whole ns. `name` is the name of
    the field that holds the value. A name that ends with `_ns` or `_ns_per_step` marks a time.
    """
    value = pick(value)
    is_time = name.endswith(("_ns", "_ns_per_step"))
    if isinstance(value, Mapping):
        return {str(key): spell_out(inner, name if is_time else str(key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [spell_out(inner, name) for inner in value]
    return round(value) if is_time and isinstance(value, float) else value
