"""What `facts` of rank.json may hold: what rules and pages read that is no column of a table, each name declared once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """One name. What is kept under it is JSON; whoever reads it takes it for hostile, and for absent in an older run."""

    name: str
    meaning: str


FACTS: tuple[Fact, ...] = (
    Fact("anomaly_mode", "Whether torch.autograd's anomaly detection was on."),
    Fact("bfloat16", "Time of the largest products in float32 and in bfloat16, and whether autocast was on (probe)."),
    Fact("cudnn_benchmark", "torch.backends.cudnn.benchmark."),
    Fact("data_parallel", "Number of devices of nn.DataParallel."),
    Fact("ddp", "Settings of DistributedDataParallel, its backwards and how many of them reduced gradients."),
    Fact("deterministic", "Whether only deterministic algorithms were allowed."),
    Fact("ended_by", "The exception that ended the training."),
    Fact("logging", "Calls and time of each library that logs, and the steps they are of."),
    Fact("matmul_precision", "torch.get_float32_matmul_precision()."),
    Fact("moment", "Where the training thread is, or was at the end: step, phase, collectives left, the next one."),
    Fact("nan_check", "Whether anomaly detection looked for NaN."),
    Fact("numa_nodes", "Memory nodes whose processors the process may use."),
    Fact("optimizers", "Of each optimizer: its class, how it loops over tensors, and its parameters by dtype."),
    Fact("probe", "Rounds of the probe, with the length of each step whose batch was ready, and what they cost."),
    Fact("python_threads", "Other Python threads of the training process, by id and name."),
    Fact("samplers", "Time in the sampler of each loader."),
    Fact("standing", "For how long the rank has stood still while it records, and after how long that counts."),
    Fact("standstills", "The longest standstills that the job got over."),
    Fact("subnormals", "Subnormal numbers among parameters, gradients and states, and what they cost (probe)."),
    Fact("triggers", "Windows that were asked for by what the steps did, and why."),
    Fact("unused_gradients", "Numbers with gradients that no optimizer takes, and those that are updated."),
    Fact("completeness", "`complete`, or what a trace lacks, in words."),
    Fact("data_loader", "Whether the loader of a trace had workers: single_process or workers."),
    Fact(
        "entered_collectives",
        "Of a Flight Recorder dump: the number of the newest collective that was entered in each group.",
    ),
    Fact("events", "Events of a trace, or of all detailed windows, by what became of them."),
    Fact("group_labels", "Of a Flight Recorder dump: what the script calls each process group."),
    Fact("is_flight_cut", "Whether a Flight Recorder dump lost its oldest entries."),
    Fact("job_operations", "The kind of a table of operations that was imported."),
    Fact("nccl_status", "When NCCL's status was asked for, and the timeouts of the answer."),
    Fact("process_groups", "Of a Flight Recorder dump: the ranks of each process group."),
    Fact("steps_confidence_frac", "How sure it is that the steps of a trace are steps."),
    Fact("steps_told_by", "How the steps of a trace were found."),
)
