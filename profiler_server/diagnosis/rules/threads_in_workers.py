"""Workers compute with several threads each, and together need more processors than there are."""

from __future__ import annotations

from profiler_server.diagnosis.limits import WORKER_CORES
from profiler_server.diagnosis.wording import STAGES_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_cores, format_number_of


def _judge(case: Case) -> Finding | None:
    loader, load = case.loading.loader, case.host.load
    if loader is None or not loader.num_workers or load is None or load.busiest_worker is None:
        return None
    crowded = case.lacks_processors and loader.num_workers * load.busiest_worker > case.host.cores
    if load.busiest_worker < WORKER_CORES or not crowded:
        return None
    return Finding(
        title="Workers compute with several threads each",
        measured=f"One worker keeps up to {load.busiest_worker:.1f} cores busy, and there are "
        f"{format_number_of(loader.num_workers, 'worker')} on {format_cores(case.host.cores)}.",
        threshold=f"A worker on at least {WORKER_CORES:g} cores, more of them than there are cores, and none is free.",
        advice="PyTorch gives each worker one thread; OpenCV, NumPy, Numba and the like start their own, as many as there "
        "are cores. One thread for each worker computes as much and disturbs the others less.",
        change="def start(worker):\n    cv2.setNumThreads(0)  # and OMP_NUM_THREADS=1 for NumPy and Numba\n\n"
        "DataLoader(..., worker_init_fn=start)",
        fix="one thread in each worker",
        evidence=(STAGES_PAGE,),
    )


RULE = Rule("threads_in_workers", knob="worker_threads", effort="flag", judge=_judge)
