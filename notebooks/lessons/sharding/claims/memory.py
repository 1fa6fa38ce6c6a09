"""What the study says of memory: which model its figures are of, and what sharding can save."""

from __future__ import annotations

from labkit.engine.run import replay
from labkit.tables.claims import claim
from labkit.tables.published import published
from lessons.sharding.claims.figures import (
    GPUS,
    LARGE,
    MIB,
    MODELS,
    REPORT,
    STATE_BYTES,
    kept_share,
    listed,
    memory_line,
    printed,
    same,
    stated,
)
from lessons.sharding.tables.training import reported

_LARGE_STATES = STATE_BYTES * MODELS[LARGE].parameters  # bytes
_ROUNDED_GB = 0.5  # of figures printed in whole GB


@claim(REPORT, "474.7 MB of parameters are GPT-2 Large's", "MB", digits=5)
def parameters():
    """In float32 a parameter takes 4 bytes. The printed size is that of GPT-2 small, which has 124 million parameters;
    GPT-2 Large has 774 million."""
    megabytes, formula = printed("memory", "megabytes", "item")["parameters"], 4 * MODELS[LARGE].parameters / MIB
    return megabytes, formula, same(megabytes, formula)


@claim(REPORT, "GPT-2 Large trains with a peak of 3 076 MB (recomputed: the least possible)", "MB", digits=5)
def peak():
    """Parameters, gradients and AdamW's two states take 16 bytes per parameter in float32. These alone are four times
    the printed peak, so the peak is impossible."""
    megabytes, least = printed("memory", "megabytes", "item")["peak allocated"], _LARGE_STATES / MIB
    return megabytes, least, megabytes >= least


@claim(REPORT, "the memory by batch size leaves room for GPT-2 Large's states", "MB", digits=5)
def states_by_batch():
    """A line through the batches from 8 on leaves 1 997 MB for no sequence at all. This is room for the states of
    GPT-2 small, 1 899 MB. It is no room for those of GPT-2 Large."""
    start, states = memory_line()[1], _LARGE_STATES / MIB
    return round(start), states, start >= states / 1.02


@claim(REPORT, "each sequence adds 1 764 MB to GPT-2 Large's memory (recomputed: our run of its setup)", "MB", digits=4)
def memory_per_sequence():
    """This is the slope of the line through the report's batches. Our run trains GPT-2 Large in float32 with plain
    attention, eight sequences at a time. Its peak without the states is several times as much per sequence."""
    run = replay("h200x2/sharding/asreported")
    peak_mib = reported(run).set_index("strategy").loc["single", "peak_mib"]
    measured = (peak_mib - _LARGE_STATES / MIB) / stated("micro-batch")
    return round(memory_line()[0]), measured, same(memory_line()[0], measured)


@claim(REPORT, "one sequence at a time needs 15 619 MB", "MB", digits=4)
def one_sequence():
    """A batch of 4 prints the same memory. Something reserved that much: the line through the larger batches asks for
    a quarter of it."""
    per_sequence, start = memory_line()
    megabytes = float(printed("batch_size", "memory_mb", "batch")[1])
    return megabytes, start + per_sequence, same(megabytes, start + per_sequence)


def _saving(strategy: str) -> tuple[float, float, float]:
    """Return the printed peak over the printed sharded one, and the least and the most that rounding to GB allows."""
    gigabytes = printed("strategies", "peak_memory_gb")
    whole, sharded = gigabytes["baseline"], gigabytes[strategy]
    least, most = (
        (whole - _ROUNDED_GB) / (sharded + _ROUNDED_GB),
        (whole + _ROUNDED_GB) / (sharded - _ROUNDED_GB),
    )
    return whole / sharded, least, most


@claim(REPORT, "full sharding divides peak memory by 3 on two GPUs", "×", digits=2, recomputes="the most possible")
def full_saving():
    """Two GPUs that share everything hold one half each. Rounding to whole GB does not explain more than that."""
    saving, least, _ = _saving("fsdp_full")
    possible = 1 / kept_share("fsdp_full", GPUS)
    return saving, possible, None if least <= possible else False


@claim(
    REPORT,
    "gradient-only divides peak memory by 1.5 on two GPUs",
    "×",
    recomputes="DDP's peak over gradient-only's, our run of its setup on 2 × H200",
)
def gradient_only_saving():
    """Each GPU keeps 10 of 16 bytes of states, which allows 1.6 at most. This bound confirms nothing, because a peak
    also holds activations, which are not sharded. With 14 111 MB of them, by its own table of batch sizes, 1.2 is the
    most. The printed whole GB mean 1.35 at least."""
    saving, least, most = _saving("fsdp_grad")
    peak_mib = reported(replay("h200x2/sharding/asreported")).set_index("strategy")["peak_mib"]
    measured = peak_mib["ddp"] / peak_mib["fsdp_grad"]
    return saving, measured, bool(least <= measured <= most)


def _parts(strategy: str) -> tuple[float, float, bool]:
    gigabytes = published("gpt2_rank_memory").set_index(["strategy", "part"])["gigabytes"][strategy]
    added = float(gigabytes.drop("total").sum())
    return gigabytes["total"], added, same(gigabytes["total"], added)


@claim(REPORT, "under full sharding a GPU holds 3 + 3 + 1 + 1.5 = 4 GB", "GB")
def parts_under_full_sharding():
    """The parts add up to twice the printed total. One half of GPT-2 Large's states alone is 6.2 GB."""
    return _parts("fsdp_full")


@claim(REPORT, "under gradient-only sharding a GPU holds 6 + 3 + 1 + 1.5 = 8 GB", "GB")
def parts_under_gradient_only():
    """The parts add up to more than the printed total."""
    return _parts("fsdp_grad")


def _adamw(place: str) -> tuple[float, float, bool]:
    gigabytes = 8 * MODELS[LARGE].parameters / 1e9
    return stated(place), gigabytes, abs(stated(place) - gigabytes) <= _ROUNDED_GB


@claim(REPORT, "AdamW's states take 6 GB", "GB")
def optimizer_states():
    """AdamW keeps two float32 numbers per parameter."""
    return _adamw("optimizer states")


@claim(REPORT, "AdamW's states take 2 GB (in another place)", "GB")
def optimizer_states_elsewhere():
    """AdamW keeps two float32 numbers per parameter. The report has 6 GB in one place and 2 GB in another."""
    return _adamw("optimizer states in another place")


@claim(REPORT, "activations take 800 to 900 MB", "MB", digits=5)
def activations():
    """By its own table of batch sizes each sequence adds 1 764 MB, and it trains eight sequences at a time."""
    most, needed = stated("most activations"), memory_line()[0] * stated("micro-batch")
    return most, needed, same(most, needed)


@claim(REPORT, "sharding leaves room for a 5 times larger batch", "×")
def larger_batch():
    """Activations limit the batch, and they are not sharded: each sequence adds 1 764 MB. On 80 GB, one half of GPT-2
    Large's states makes room for 9 % more sequences."""
    per_sequence = memory_line()[0] * MIB
    before, after = ((80e9 - share * _LARGE_STATES) / per_sequence for share in (1, kept_share("fsdp_full", GPUS)))
    return stated("larger batch by sharding"), after / before, after / before >= stated("larger batch by sharding")


@claim(REPORT, "on 2, 4 and 8 GPUs gradient-only sharding needs 8, 6 and 4.5 GB", "GB")
def projected_memory():
    """It starts from 12 GB on one GPU. Sharding 12 of 16 bytes leaves 6 to 12.5 % less than the report prints. From
    12.4 GB, GPT-2 Large's states before rounding, it leaves 3 to 10 % less. None of these figures has room for
    activations. A projection holds within 5 %."""
    rows = published("gpt2_projection").set_index("gpus")["fsdp_grad_memory_gb"]
    rule = rows[1] * kept_share("fsdp_grad", rows.index.to_series())
    more = rows.index > 1
    return listed(rows[more]), listed(rule[more]), bool(((rows / rule - 1).abs() <= 0.05).all())
