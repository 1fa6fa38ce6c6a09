"""What the study says of memory: which model its figures are of, and what sharding can save."""

from __future__ import annotations

from typing import Any

import pandas as pd

from labkit.tables.claims import within
from labkit.tables.published import published
from lessons.sharding.claims.report import (
    GPUS,
    LARGE,
    LARGE_STATES_BYTES,
    MIB,
    MODELS,
    OUR_RUN,
    ROUNDED_GB,
    SAME,
    STRATEGIES,
    TEXT,
    at_least,
    equal,
    joined,
    kept_share,
    memory_line,
    printed,
    recorded,
    saving_bounds,
    stated,
    stated_rows,
)

_STATES = ("optimizer states", "optimizer states in another place")
_BATCHES, _MEMORY = "memory by batch size", "memory of one GPU"


def _states_mib() -> float:
    return LARGE_STATES_BYTES / MIB


def _at_batch(sequences: float) -> float:
    """Return the MiB that the line through the report's batches asks for."""
    per_sequence, start = memory_line()
    return start + per_sequence * sequences


def _per_sequence() -> float:
    peak_mib = recorded().loc["single", "peak_mib"]
    return (peak_mib - _states_mib()) / stated("micro-batch")


def _room() -> float:
    """Return how many times as many sequences fit 80 GB with one half of GPT-2 Large's states as with all of them."""
    before, after = (80e9 - share * LARGE_STATES_BYTES for share in (1, kept_share("fsdp_full", GPUS)))
    return after / before


def _gradient_only() -> float:
    peak_mib = recorded()["peak_mib"]
    return peak_mib["ddp"] / peak_mib["fsdp_grad"]


def _parts() -> tuple[list[float], list[float]]:
    """Return the printed totals of what a GPU holds under full and gradient-only, and their parts added up, in GB."""
    rows = published("gpt2_rank_memory").pivot_table(index="strategy", columns="part", values="gigabytes")
    rows = rows.loc[["fsdp_full", "fsdp_grad"]]
    return rows["total"].tolist(), rows.drop(columns="total").sum(axis=1).tolist()


def _adamw_gb() -> float:
    return 8 * MODELS[LARGE].parameters / 1e9


def _projected() -> tuple[pd.Series, pd.Series]:
    """Return the printed GB of gradient-only on 2, 4 and 8 GPUs, and by the rule from those on one GPU."""
    rows = published("gpt2_projection").set_index("gpus")["fsdp_grad_memory_gb"]
    rule = rows[1] * kept_share("fsdp_grad", rows.index.to_series())
    return rows[rows.index > 1], rule[rows.index > 1]


def _projection_holds(*_figures: Any) -> bool:
    rows, rule = _projected()
    return bool(((rows / rule - 1).abs() <= 0.05).all())


CLAIMS = stated_rows(
    {
        "name": "peak",
        "where": _MEMORY,
        "says": "GPT-2 Large trains with a peak of 3 076 MB",
        "printed": lambda: printed("memory", "megabytes", "item")["peak allocated"],
        "recomputed": _states_mib,
        "recomputes": "the least: 16 bytes per parameter",
        "holds": at_least,
        "unit": "MB",
        "digits": 5,
        "chosen": True,
        "reason": "Parameters, gradients and two states of AdamW alone are four times the printed peak. "
        "The figures are those of GPT-2 small.",
    },
    {
        "name": "full_saving",
        "where": STRATEGIES,
        "says": "Full sharding divides the peak by 3 on two GPUs",
        "printed": lambda: saving_bounds("fsdp_full")[0],
        "recomputed": lambda: 1 / kept_share("fsdp_full", GPUS),
        "recomputes": "the most possible",
        "holds": lambda _, most: None if saving_bounds("fsdp_full")[1] <= most else False,
        "unit": "×",
        "digits": 2,
        "chosen": True,
        "reason": "Two GPUs that share everything hold one half each. Rounding to whole GB explains no more.",
    },
    {
        "name": "larger_batch",
        "where": TEXT,
        "says": "Sharding leaves room for a 5 times larger batch: 12 of 80 GB are in use",
        "printed": lambda: stated("larger batch by sharding"),
        "recomputed": _room,
        "recomputes": "one half of the states makes room",
        "holds": lambda figure, most: most >= figure,
        "unit": "×",
        "chosen": True,
        "reason": "Activations fill the rest, and no strategy shards them: each sequence adds 1 764 MB.",
    },
    {
        "name": "memory_at_64",
        "where": _BATCHES,
        "says": "64 sequences run out of memory, which confirms a need of about 60 GB",
        "printed": lambda: stated("memory of 64 sequences"),
        "recomputed": lambda: _at_batch(64) * MIB / 1e9,
        "recomputes": "the line through its own batches",
        "holds": within(1.1),
        "unit": "GB",
        "digits": 4,
        "chosen": True,
        "reason": "60 GB would fit into 80 GB. The printed 58 438 MB are those of 32 sequences.",
    },
    {
        "name": "parameters",
        "where": _MEMORY,
        "says": "474.7 MB of parameters are GPT-2 Large's",
        "printed": lambda: printed("memory", "megabytes", "item")["parameters"],
        "recomputed": lambda: 4 * MODELS[LARGE].parameters / MIB,
        "holds": SAME,
        "unit": "MB",
        "digits": 5,
        "reason": "In float32 a parameter takes 4 bytes. 474.7 MB hold the 124 million of GPT-2 small.",
    },
    {
        "name": "parameter_count",
        "where": TEXT,
        "says": "GPT-2 Large has 774 439 808 parameters",
        "printed": lambda: stated("parameters"),
        "recomputed": lambda: MODELS[LARGE].parameters,
        "recomputes": "with the head that shares the embedding's matrix",
        "holds": equal,
        "digits": 9,
        "reason": "Its last six digits are those of GPT-2 small, which has 124 439 808.",
    },
    {
        "name": "states_by_batch",
        "where": _BATCHES,
        "says": "The memory by batch size leaves room for GPT-2 Large's states",
        "printed": lambda: round(_at_batch(0)),
        "recomputed": _states_mib,
        "holds": lambda start, states: start >= states / 1.02,
        "unit": "MB",
        "digits": 5,
        "reason": "A line through the batches from 8 on leaves 1 997 MB for no sequence: the states of GPT-2 small.",
    },
    {
        "name": "memory_per_sequence",
        "where": _BATCHES,
        "says": "Each sequence adds 1 764 MB to GPT-2 Large's memory",
        "printed": lambda: round(memory_line()[0]),
        "recomputed": _per_sequence,
        "recomputes": OUR_RUN,
        "holds": SAME,
        "unit": "MB",
        "digits": 4,
        "reason": "It is the slope of a line through its batches. Our run has the same precision and attention.",
    },
    {
        "name": "one_sequence",
        "where": _BATCHES,
        "says": "One sequence needs 15 619 MB",
        "printed": lambda: float(printed("batch_size", "memory_mb", "batch")[1]),
        "recomputed": lambda: _at_batch(1),
        "recomputes": "the line through its larger batches",
        "holds": SAME,
        "unit": "MB",
        "digits": 4,
        "reason": "A batch of 4 prints the same memory: something had reserved that much.",
    },
    {
        "name": "gradient_only_saving",
        "where": STRATEGIES,
        "says": "Gradient-only divides the peak by 1.5 on two GPUs",
        "printed": lambda: saving_bounds("fsdp_grad")[0],
        "recomputed": _gradient_only,
        "recomputes": f"DDP's peak over gradient-only's, {OUR_RUN}",
        "holds": lambda _, measured: bool(saving_bounds("fsdp_grad")[1] <= measured <= saving_bounds("fsdp_grad")[2]),
        "unit": "×",
        "reason": "States alone allow 1.6. With the activations of its own table of batch sizes, 1.2 is the most.",
    },
    {
        "name": "parts",
        "where": "list of a GPU's memory",
        "says": "Under full and gradient-only sharding a GPU holds 4 and 8 GB",
        "printed": lambda: joined(_parts()[0]),
        "recomputed": lambda: joined(_parts()[1]),
        "recomputes": "the printed parts, added up",
        "holds": equal,
        "unit": "GB",
        "reason": "The lists are 3 + 3 + 1 + 1.5 and 6 + 3 + 1 + 1.5 GB: more than their printed totals.",
    },
    {
        "name": "optimizer_states",
        "where": TEXT,
        "says": "AdamW's states take 6 GB, and in another place 2 GB",
        "printed": lambda: joined(map(stated, _STATES)),
        "recomputed": _adamw_gb,
        "holds": lambda *_: all(abs(stated(place) - _adamw_gb()) <= ROUNDED_GB for place in _STATES),
        "unit": "GB",
        "reason": "AdamW keeps two float32 numbers per parameter. The first figure holds.",
    },
    {
        "name": "activations",
        "where": TEXT,
        "says": "Activations take 800 to 900 MB",
        "printed": lambda: stated("most activations"),
        "recomputed": lambda: memory_line()[0] * stated("micro-batch"),
        "recomputes": "eight sequences, by its own batches",
        "holds": SAME,
        "unit": "MB",
        "digits": 5,
        "reason": "By its own table each sequence adds 1 764 MB, and it trains eight simultaneously.",
    },
    {
        "name": "projected_memory",
        "where": "projection",
        "says": "On 2, 4 and 8 GPUs gradient-only sharding needs 8, 6 and 4.5 GB",
        "printed": lambda: joined(_projected()[0]),
        "recomputed": lambda: joined(_projected()[1]),
        "recomputes": "its 12 GB on one GPU, 12 of 16 bytes sharded",
        "holds": _projection_holds,
        "unit": "GB",
        "reason": "The rule gives 6 to 12.5 % less, and no figure has room for activations. Agreement is within 5 %.",
    },
)
