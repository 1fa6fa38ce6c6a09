"""What the study reads from its profile: exposed communication, windows, and which collectives were called."""

from __future__ import annotations

import pandas as pd

from labkit.tables.claims import claim
from labkit.tables.published import published
from labkit.theory.kernels import collective
from labkit.theory.traffic import through_a_link, traffic
from lessons.sharding.claims.figures import GPUS, LARGE, MODELS, REPORT, listed, printed, same, stated


@claim(REPORT, "idle, computing and other time add up to the profiled window (DDP)", "ms", digits=5)
def window_adds_up():
    """They do, for all strategies."""
    rows = published("gpt2_breakdown").set_index("strategy")
    added = rows[["idle_ms", "compute_ms", "non_compute_ms"]].sum(axis=1)
    return rows["kernel_ms"]["ddp"], added["ddp"], bool(((added - rows["kernel_ms"]).abs() <= 0.15).all())


@claim(REPORT, "a profiled window is one step of training (DDP)", "ms", digits=4)
def window_is_a_step():
    """Under each of the three strategies on two GPUs the window lasts 2.4 timed steps, on one GPU 1.2. And yet it has
    the collectives of one forward and backward."""
    window, seconds = printed("breakdown", "kernel_ms")["ddp"], printed("strategies", "train_seconds_20_steps")["ddp"]
    step_ms = 1e3 * seconds / stated("timed steps")
    return window, step_ms, abs(window / step_ms - 1) <= 0.25


@claim(REPORT, "exposed communication under DDP, full and gradient-only: 7.9, 4.6 and 1.7 ms", "ms")
def exposed():
    """The printed times are time without computing, times the share that is not overlapped. Time without computing is
    exposed already, so the overlap is taken off twice. The NCCL kernels themselves, less their overlapped share, give
    other times."""
    rows = published("gpt2_breakdown").set_index("strategy").dropna(subset="exposed_ms")
    kernels = _nccl().groupby("strategy")["microseconds"].sum() / 1e3
    computed = (kernels * (1 - rows["overlap_percent"] / 100))[rows.index]
    return (
        listed(rows["exposed_ms"]),
        listed(computed.round(1)),
        bool(((computed - rows["exposed_ms"]).abs() < 0.1).all()),
    )


@claim(REPORT, "exposed communication is all that DDP, full and gradient-only cost", "ms")
def cost_of_communication():
    """The windows of the three strategies are longer than the baseline's by twelve times as much, or more."""
    rows = published("gpt2_breakdown").set_index("strategy")
    grown = (rows["kernel_ms"] - rows["kernel_ms"]["baseline"]).drop("baseline")
    spent = rows["exposed_ms"].drop("baseline")
    return listed(spent), listed(grown.round(0).astype(int)), bool(((grown / spent - 1).abs() <= 0.1).all())


@claim(REPORT, "DDP calls 109 all-reduces, full sharding 73 all-gathers, gradient-only 37")
def collectives_called():
    """These are the calls of one forward and backward of GPT-2 Large: DDP's buckets of 25 MiB; an all-gather per block
    and one for the rest; under full sharding the blocks once more for backward."""
    calls = _most_called()["calls"]
    formula = [_by_formula(strategy).calls for strategy in calls.index]
    return listed(calls), listed(formula), list(calls) == formula


@claim(REPORT, "gradient-only gathers parameters again for backward", "all-gathers")
def gathers_of_gradient_only():
    """The text has it so. 37 calls are one per block and one for the rest, in forward. Gradient-only keeps the
    parameters until backward has used them; full sharding gathers again, and has 73 calls."""
    calls = _most_called()["calls"]
    return calls["fsdp_grad"], _by_formula("fsdp_full").calls, calls["fsdp_grad"] == _by_formula("fsdp_full").calls


@claim(REPORT, "FSDP's gradients are exchanged: the list has their reduce-scatters", "calls")
def reduce_scatters():
    """No reduce-scatter is listed for either kind of sharding. One per block and one for the rest are needed."""
    rows = _nccl()
    listed_calls = int(rows[rows["collective"] == "reduce_scatter"]["calls"].sum())
    needed = traffic(MODELS[LARGE], "fsdp_full", GPUS)[1].calls
    return listed_calls, needed, listed_calls >= needed


@claim(REPORT, "gradient-only gathers for longer than full sharding (recomputed: by its bytes)", "×")
def time_of_gathers():
    """Gradient-only gathers 52 % of the bytes in 2.1 times the time. NCCL's kernels also count the time in which they
    wait for the other GPU. So the times cannot say what the bytes cost."""
    times = _most_called()["microseconds"]
    moved = _by_formula("fsdp_grad").bytes / _by_formula("fsdp_full").bytes
    slower = times["fsdp_grad"] / times["fsdp_full"]
    return round(slower, 2), moved, True if slower <= 1 else None


@claim(REPORT, "DDP sends 475 MB per step", "MB", digits=4)
def sent_by_ddp():
    """475 MB are the gradients of GPT-2 small. GPT-2 Large, whose 109 all-reduces the trace shows, has 3 096 MB of
    gradients in float32, and on two GPUs each GPU sends as much."""
    sent = through_a_link(traffic(MODELS[LARGE], "ddp", GPUS), GPUS) / 1e6
    return stated("sent by ddp per step"), sent, same(stated("sent by ddp per step"), sent)


def _nccl() -> pd.DataFrame:
    """Return the rows of NCCL's kernels with their collective and strategy."""
    rows = published("gpt2_operators")
    rows = rows[rows["operation"].str.startswith("nccl")]
    return rows.assign(strategy=rows["compared"].str.split(" -> ").str[1], collective=rows["operation"].map(collective))


def _most_called() -> pd.DataFrame:
    """Return the row of each strategy's own collective: DDP's all-reduce, FSDP's all-gather."""
    rows = _nccl()
    return rows[rows["collective"].isin(["all_reduce", "all_gather"])].set_index("strategy")


def _by_formula(strategy: str):
    return traffic(MODELS[LARGE], strategy, GPUS)[0]
