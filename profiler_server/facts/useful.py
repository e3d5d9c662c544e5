"""What of a step is useful: tokens that are no padding, and the share of the device's peak that the model uses. What of
a job's time is useful: steps that were kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TokenRate:
    """The tokens of the batches of `model`, called or fetched at `place`, in the `looks` steps that were examined.

    `real_frac` is the share that is no padding. `trained_frac` is the share that counts in the loss, None if unknown.
    `per_sample` counts padding, too, as `per_s` does. The rates are None if no batch size was recorded.
    """

    model: str
    place: str
    looks: int
    real_frac: float
    trained_frac: float | None
    per_sample: float
    per_s: float | None
    real_per_s: float | None


@dataclass(frozen=True)
class ModelUse:
    """The model FLOPs utilisation (MFU): `flops_per_step` / (`step_ns` × `peak_flops_per_s`).

    `flops_per_step` are the operations of matrix products, convolutions and attention of forward and backward in the
    `steps` steps of detailed windows, from their shapes. `step_ns` is the mean step of the run. The peak is the dense
    one of `device`, from `source`; with several precisions it is the one at which all these operations take as long as
    each at its own peak. `precisions` are their shares of the operations.

    `covered_frac` is the share of the time of such kernels whose operations are known, None without a device. If `frac`
    is None, `missing` is the reason.
    """

    frac: float | None
    missing: str = ""
    flops_per_step: float | None = None
    step_ns: float | None = None
    peak_flops_per_s: float | None = None
    precisions: dict[str, float] | None = None
    device: str = ""
    source: str = ""
    steps: int = 0
    covered_frac: float | None = None


@dataclass(frozen=True)
class JobTime:
    """The wall time of all attempts of a job, `total_ns`, by what it was spent on. All parts sum to it: `steps_ns`, and
    those whose names are no sums of steps.

    The steps that no later attempt repeated take between `kept_low_ns` and `kept_high_ns` of `steps_ns`; none of the
    three has `saving_ns`. `start_up_ns` is the time of all attempts before their first training step, and `between_ns`
    the time when no recorded attempt ran. `unknown` are the attempts that do not show after which step they went on. If
    there is none, the two bounds are equal, and `repeated_steps` is the number of steps that were repeated.
    """

    total_ns: int
    kept_low_ns: int
    kept_high_ns: int
    steps_ns: int
    repeated_steps: int | None
    saving_ns: int
    evaluation_ns: int
    start_up_ns: int
    between_ns: int
    other_ns: int
    unknown: tuple[int, ...]

    @property
    def useful_low_frac(self) -> float:
        return self.kept_low_ns / self.total_ns if self.total_ns else 0.0

    @property
    def useful_high_frac(self) -> float:
        return self.kept_high_ns / self.total_ns if self.total_ns else 0.0
