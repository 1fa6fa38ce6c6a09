"""What the study reads from its profile: exposed communication, windows, and which collectives were called."""

from __future__ import annotations

import pandas as pd

from labkit.tables.claims import within
from labkit.tables.published import published
from labkit.theory.traffic import through_a_link, traffic
from lessons.sharding.claims.report import (
    GPUS,
    LARGE,
    MIB,
    MODELS,
    SAME,
    TEXT,
    at_least,
    by_formula,
    equal,
    joined,
    nccl_rows,
    own_collectives,
    printed,
    stated,
    stated_rows,
)

_PROFILE, _OPERATORS = "profile of a window", "list of operators"


def _breakdown() -> pd.DataFrame:
    return published("gpt2_breakdown").set_index("strategy")


def _kernel_ms() -> pd.Series:
    """Return kernel time by the report's definition: computing and other kernels, in ms."""
    return _breakdown()[["compute_ms", "non_compute_ms"]].sum(axis=1)


def _step_ms() -> float:
    return 1e3 * printed("strategies", "train_seconds_20_steps")["ddp"] / stated("timed steps")


def _exposed() -> tuple[pd.Series, pd.Series]:
    """Return the printed exposed ms, and the NCCL kernels' own less their overlapped share."""
    rows = _breakdown().dropna(subset="exposed_ms")
    kernels = nccl_rows().groupby("strategy")["microseconds"].sum() / 1e3
    return rows["exposed_ms"], (kernels * (1 - rows["overlap_percent"] / 100))[rows.index]


def _grown() -> tuple[pd.Series, pd.Series]:
    """Return the printed exposed ms, and by how much each window is longer than the baseline's."""
    rows = _breakdown()
    return rows["exposed_ms"].drop("baseline"), (rows["kernel_ms"] - rows["kernel_ms"]["baseline"]).drop("baseline")


def _calls() -> tuple[list[int], list[int]]:
    """Return the calls of each strategy's own collective: printed, and by formula."""
    calls = own_collectives()["calls"]
    return list(calls), [by_formula(str(strategy)).calls for strategy in calls.index]


def _gathered_by_gradient_only() -> str:
    """Return what an all-gather per block and one for the rest gather: counted calls agree only for parameters."""
    calls = own_collectives()["calls"]["fsdp_grad"]
    return "parameters" if calls == by_formula("fsdp_grad").calls else "unknown"


def _scatters() -> int:
    rows = nccl_rows()
    return int(rows[rows["collective"] == "reduce_scatter"]["calls"].sum())


def _times_of_gathers() -> float:
    times = own_collectives()["microseconds"]
    return round(times["fsdp_grad"] / times["fsdp_full"], 2)


CLAIMS = stated_rows(
    {
        "name": "exposed",
        "where": _PROFILE,
        "says": "DDP, full and gradient-only expose 7.9, 4.6 and 1.7 ms of communication",
        "printed": lambda: joined(_exposed()[0]),
        "recomputed": lambda: joined(_exposed()[1].round(1)),
        "recomputes": "NCCL's kernels, less their overlapped share",
        "holds": lambda *_: bool(((_exposed()[1] - _exposed()[0]).abs() < 0.1).all()),
        "unit": "ms",
        "reason": "Time without computing is exposed already: the overlap is subtracted twice. Elsewhere it is 3.2 ms.",
    },
    {
        "name": "gathered_by_gradient_only",
        "where": _OPERATORS,
        "says": "Gradient-only's 37 all-gathers gather gradients and optimizer states",
        "printed": lambda: printed("statements", "value", "statement")["gathered by gradient-only"],
        "recomputed": _gathered_by_gradient_only,
        "holds": equal,
        "chosen": True,
        "reason": "Each block and the rest gather parameters once, in forward: 37 calls. Full sharding gathers again.",
    },
    {
        "name": "kernel_time",
        "where": _PROFILE,
        "says": "Kernel time is computing and other kernels (DDP)",
        "printed": lambda: _breakdown()["kernel_ms"]["ddp"],
        "recomputed": lambda: _kernel_ms()["ddp"],
        "recomputes": "by this definition",
        "holds": lambda *_: bool(((_kernel_ms() - _breakdown()["kernel_ms"]).abs() <= 0.15).all()),
        "unit": "ms",
        "digits": 5,
        "reason": "The printed column also counts idle time: it is the length of the window.",
    },
    {
        "name": "window_is_a_step",
        "where": _PROFILE,
        "says": "A profiled window is one step of training (DDP)",
        "printed": lambda: _breakdown()["kernel_ms"]["ddp"],
        "recomputed": _step_ms,
        "recomputes": "by the printed seconds",
        "holds": within(1.25),
        "unit": "ms",
        "digits": 4,
        "reason": "The window lasts 2.4 timed steps, and yet has the collectives of one forward and backward.",
    },
    {
        "name": "cost_of_communication",
        "where": _PROFILE,
        "says": "Exposed communication is all that DDP, full and gradient-only cost",
        "printed": lambda: joined(_grown()[0]),
        "recomputed": lambda: joined(_grown()[1].round(0).astype(int)),
        "recomputes": "by how much the window is longer than one GPU's",
        "holds": lambda *_: bool(((_grown()[1] / _grown()[0] - 1).abs() <= 0.1).all()),
        "unit": "ms",
        "reason": "The windows grow by twelve times as much, or more.",
    },
    {
        "name": "collectives_called",
        "where": _OPERATORS,
        "says": "DDP calls 109 all-reduces, full sharding 73 all-gathers, gradient-only 37",
        "printed": lambda: joined(_calls()[0]),
        "recomputed": lambda: joined(_calls()[1]),
        "recomputes": "by formula, for GPT-2 Large",
        "chosen": True,
        "holds": equal,
        "reason": "DDP has a call per bucket of 25 MiB; FSDP one per block and one for the rest.",
    },
    {
        "name": "reduce_scatters",
        "where": _OPERATORS,
        "says": "The list has all of FSDP's collectives: its reduce-scatters",
        "printed": _scatters,
        "recomputed": lambda: traffic(MODELS[LARGE], "fsdp_full", GPUS)[1].calls,
        "recomputes": "needed to exchange gradients",
        "holds": at_least,
        "unit": "calls",
        "reason": "No reduce-scatter is listed for either kind of sharding.",
    },
    {
        "name": "time_of_gathers",
        "where": _OPERATORS,
        "says": "Gradient-only gathers for longer than full sharding",
        "printed": _times_of_gathers,
        "recomputed": lambda: by_formula("fsdp_grad").bytes / by_formula("fsdp_full").bytes,
        "recomputes": "by its bytes",
        "holds": lambda slower, _: True if slower <= 1 else None,
        "unit": "×",
        "reason": "NCCL's kernels also count the time in which they wait for the other GPU.",
    },
    {
        "name": "sent_by_ddp",
        "where": TEXT,
        "says": "DDP sends 475 MB per step",
        "printed": lambda: stated("sent by ddp per step"),
        "recomputed": lambda: through_a_link(traffic(MODELS[LARGE], "ddp", GPUS), GPUS) / MIB,
        "recomputes": "GPT-2 Large's gradients in float32",
        "holds": SAME,
        "unit": "MB",
        "digits": 4,
        "reason": "475 MB are GPT-2 small's gradients. The 109 all-reduces in the list are GPT-2 Large's.",
    },
)
