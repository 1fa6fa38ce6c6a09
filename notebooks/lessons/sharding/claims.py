"""What the study of GPT-2 Large on two H100s says of memory, of speed and of its profile, recomputed."""

from __future__ import annotations

from operator import eq, ge, le
from typing import Any

import numpy as np
import pandas as pd

from labkit.tables.claims import Figures, within
from labkit.tables.published import H100, published
from labkit.theory.gpt import SIZES, flop_per_token, gpt
from labkit.theory.kernels import collective
from labkit.theory.sizes import MIB
from labkit.theory.traffic import Sent, traffic

RECORDED = "h200x2/sharding/asreported"  # our run of its configuration
GPUS = 2
LARGE = "GPT-2 Large"
MODEL = gpt(*SIZES[LARGE][:2])
STATE_BYTES = 16  # per parameter in float32: itself, its gradient and AdamW's two states
LARGE_STATES_BYTES = STATE_BYTES * MODEL.parameters
ROUNDED_GB = 0.5  # of figures printed in whole GB
_SHARDED_BYTES = {"fsdp_full": 16, "fsdp_grad": 12}  # of them; the report's gradient-only keeps the weights whole

SAME = within(1.02)


def printed(table: str, column: str, by: str = "strategy") -> pd.Series:
    """Return a column of one of the report's tables."""
    return published(f"gpt2_{table}").set_index(by)[column]


def stated_number(name: str) -> float:
    """Return a number that the report's text states."""
    return float(printed("statements", "value", "statement")[name])


def figures_text(values: Any) -> str:
    """Return figures as one text: three significant digits each, with commas."""
    return ", ".join(f"{value:.3g}" if isinstance(value, float) else str(value) for value in values)


def printed_rate() -> float:
    """Return the tokens per second that the report prints for one GPU."""
    return printed("strategies", "tokens_per_second")["baseline"]


def rate_by_seconds() -> float:
    """Return the tokens per second of the baseline's printed seconds."""
    tokens = stated_number("timed steps") * stated_number("global batch") * stated_number("sequence")
    return tokens / printed("strategies", "train_seconds_20_steps")["baseline"]


def tflops(model: str, tokens_per_s: float) -> float:
    """Return the TFLOP/s of a model that trains at a rate in tokens per second."""
    layers, hidden, _ = SIZES[model]
    per_token = flop_per_token(gpt(layers, hidden).parameters, layers, hidden, int(stated_number("sequence")))
    return tokens_per_s * per_token / 1e12


def kept_share(strategy: str, gpus: Any) -> Any:
    """Return the share of 16 bytes per parameter that each of `gpus` GPUs keeps."""
    return 1 - _SHARDED_BYTES[strategy] / STATE_BYTES * (1 - 1 / gpus)


def memory_line() -> tuple[float, float]:
    """Return MiB per sequence, and MiB without any, of a line through the batches whose memory rises."""
    rows = published("gpt2_batch_size").query("memory_mb != 'OOM'").astype({"memory_mb": float})
    rising = rows[rows["memory_mb"] > rows["memory_mb"].min()]
    slope, start = np.polyfit(rising["batch"], rising["memory_mb"], 1)
    return float(slope), float(start)


def saving_bounds(strategy: str) -> tuple[float, float, float]:
    """Return the printed peak over the printed sharded one, and the least and the most that rounding to GB allows."""
    gigabytes = printed("strategies", "peak_memory_gb")
    whole, sharded = gigabytes["baseline"], gigabytes[strategy]
    least = (whole - ROUNDED_GB) / (sharded + ROUNDED_GB)
    return whole / sharded, least, (whole + ROUNDED_GB) / (sharded - ROUNDED_GB)


def nccl_rows() -> pd.DataFrame:
    """Return the rows of NCCL's kernels in the report's list of operators, with their collective and strategy."""
    rows = published("gpt2_operators")
    rows = rows[rows["operation"].str.startswith("nccl")]
    return rows.assign(strategy=rows["compared"].str.split(" -> ").str[1], collective=rows["operation"].map(collective))


def own_collectives() -> pd.DataFrame:
    """Return the row of each strategy's own collective: DDP's all-reduce, FSDP's all-gather."""
    rows = nccl_rows()
    return rows[rows["collective"].isin(["all_reduce", "all_gather"])].set_index("strategy")


def by_formula(strategy: str) -> Sent:
    """Return what a strategy's own collective sends in a step of one micro-batch."""
    return traffic(MODEL, strategy, GPUS)[0]


def _states_mib() -> float:
    return LARGE_STATES_BYTES / MIB


def _at_batch(sequences: float) -> float:
    """Return the MiB that the line through the report's batches asks for."""
    per_sequence, start = memory_line()
    return start + per_sequence * sequences


def _printed_mb(sequences: int) -> int:
    return int(printed("batch_size", "memory_mb", "batch")[sequences])


def _room() -> float:
    """Return how many times the report's micro-batch fits 80 GB, by the line through its batches."""
    per_sequence, start = memory_line()
    return (80e9 / MIB - start) / per_sequence / stated_number("micro-batch")


def _limit_at_64(limit_gb: float, needed_gb: float) -> bool | None:
    """Return whether 64 sequences need the printed limit; None where it can be what the last batch that fits needs."""
    near = within(1.1)
    return True if near(limit_gb, needed_gb) else None if near(limit_gb, _printed_mb(32) * MIB / 1e9) else False


def _parts() -> tuple[list[float], list[float]]:
    """Return the printed totals of what a GPU holds under full and gradient-only, and their parts added up, in GB."""
    rows = published("gpt2_rank_memory").pivot_table(index="strategy", columns="part", values="gigabytes")
    rows = rows.loc[["fsdp_full", "fsdp_grad"]]
    return rows["total"].tolist(), rows.drop(columns="total").sum(axis=1).tolist()


def _calls() -> tuple[list[int], list[int]]:
    """Return the calls of each strategy's own collective: printed, and by formula."""
    calls = own_collectives()["calls"]
    return list(calls), [by_formula(str(strategy)).calls for strategy in calls.index]


def _gathered_by_gradient_only() -> str:
    """Return what an all-gather per block and one for the rest gather: counted calls agree only for parameters."""
    calls = own_collectives()["calls"]["fsdp_grad"]
    return "parameters" if calls == by_formula("fsdp_grad").calls else "unknown"


_NAMES = {"ddp": "DDP", "fsdp_full": "full", "fsdp_grad": "gradient-only"}


def _in_float32() -> bool:
    operators = published("gpt2_operators")["operation"]
    matrix_products = printed("statements", "value", "statement")["kernel of matrix products"]
    names = [*operators[operators.str.contains("AllReduce")], matrix_products]
    return all("f32" in name for name in names)


def _possible_in(needed: float, most: float) -> bool | None:
    """Return whether an H100 reaches these TFLOP/s in float32; None where it does in FP16 alone: see `precision`."""
    if needed <= 1.02 * most:
        return True
    return None if needed <= H100.tflops("fp16") else False


def _ranked_names(ranked: pd.Series) -> str:
    return figures_text(_NAMES[strategy] for strategy in ranked.index)


FIGURES = {
    # Of memory.
    "peak": Figures(lambda: printed("memory", "megabytes", "item")["peak allocated"], _states_mib, ge),
    "full_saving": Figures(
        lambda: saving_bounds("fsdp_full")[0],
        lambda: 1 / kept_share("fsdp_full", GPUS),
        lambda _, most: None if saving_bounds("fsdp_full")[1] <= most else False,
    ),
    "larger_batch": Figures(lambda: stated_number("larger batch in the memory that is left"), _room, le),
    "memory_at_64": Figures(
        lambda: stated_number("limit of memory that 64 sequences confirm"),
        lambda: _at_batch(64) * MIB / 1e9,
        _limit_at_64,
    ),
    "same_memory": Figures(
        lambda: figures_text(_printed_mb(batch) for batch in (1, 4)),
        lambda: figures_text(round(_at_batch(batch)) for batch in (1, 4)),
        lambda *_: all(within(1.1)(_printed_mb(batch), _at_batch(batch)) for batch in (1, 4)),
    ),
    "parameter_count": Figures(lambda: stated_number("parameters"), lambda: MODEL.parameters, eq),
    "parts": Figures(lambda: figures_text(_parts()[0]), lambda: figures_text(_parts()[1]), eq),
    "seventy_billion": Figures(
        lambda: stated_number("memory of a GPU for gradient-only"),
        lambda: 2 * stated_number("most parameters for gradient-only"),
        ge,
    ),
    "activations": Figures(
        lambda: stated_number("most activations"), lambda: memory_line()[0] * stated_number("micro-batch"), SAME
    ),
    # Of the profile.
    "gathered_by_gradient_only": Figures(
        lambda: printed("statements", "value", "statement")["gathered by gradient-only"],
        _gathered_by_gradient_only,
        eq,
    ),
    "collectives_called": Figures(lambda: figures_text(_calls()[0]), lambda: figures_text(_calls()[1]), eq),
    # Of speed.
    "rate_in_float32": Figures(
        lambda: round(tflops(LARGE, printed_rate())),
        lambda: H100.tflops("fp32"),
        _possible_in,
    ),
    "ranking": Figures(
        lambda: _ranked_names(printed("breakdown", "compute_percent").drop("baseline").sort_values(ascending=False)),
        lambda: _ranked_names(printed("strategies", "train_seconds_20_steps").drop("baseline").sort_values()),
        lambda printed, seconds: True if printed == seconds else None,
    ),
    "rate": Figures(printed_rate, rate_by_seconds, SAME),
    "precision": Figures(
        lambda: printed("statements", "value", "statement")["precision"],
        lambda: "float32" if _in_float32() else "mixed",
        lambda _, precision: precision != "float32",
    ),
    "fewer_all_reduces": Figures(
        lambda: stated_number("fewer all-reduces by accumulation"),
        lambda: stated_number("global batch") / (2 * stated_number("micro-batch")),
        SAME,
    ),
}
