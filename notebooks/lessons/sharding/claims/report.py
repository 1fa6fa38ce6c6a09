"""The study of GPT-2 Large on two H100s: its figures, GPT-2 as shapes, and what follows from both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from labkit.engine.run import replay
from labkit.node import limits
from labkit.tables.claims import Stated, within
from labkit.tables.published import published
from labkit.theory.gpt import SIZES, flop_per_token, gpt
from labkit.theory.kernels import collective
from labkit.theory.traffic import Sent, traffic
from lessons.sharding.tables import reported

REPORT = "gpt2-2xh100"
RECORDED = "h200x2/sharding/asreported"  # our run of its configuration
GPUS = 2
H100: Any = limits.spec("NVIDIA H100 80GB HBM3")
LARGE = "GPT-2 Large"
MODELS = {name: gpt(*SIZES[name][:2]) for name in SIZES if name.startswith("GPT-2")}
MIB = 2**20
STATE_BYTES = 16  # per parameter in float32: itself, its gradient and AdamW's two states
LARGE_STATES_BYTES = STATE_BYTES * MODELS[LARGE].parameters
ROUNDED_GB = 0.5  # of figures printed in whole GB
_SHARDED_BYTES = {"fsdp_full": 16, "fsdp_grad": 12}  # of them; the report's gradient-only keeps the weights whole

SAME = within(1.02)
NEAR = within(1.1)  # two models use a GPU alike, or two figures come from a profile
OUR_RUN = "our run of its setup on 2 × H200"
STRATEGIES, TEXT = "table of strategies", "text"  # where it says so


def equal(printed_figure: Any, recomputed: Any) -> bool:
    return printed_figure == recomputed


def at_least(printed_figure: float, recomputed: float) -> bool:
    """Return whether the printed figure is no less than the least possible one."""
    return printed_figure >= recomputed


def stated_rows(*rows: dict[str, Any]) -> tuple[Stated, ...]:
    """Return the report's claims; those that a notebook shows say so."""
    folded: dict[str, Any] = {"chosen": False}
    return tuple(Stated(report=REPORT, **(folded | row)) for row in rows)


def printed(table: str, column: str, by: str = "strategy") -> pd.Series:
    """Return a column of one of the report's tables."""
    return published(f"gpt2_{table}").set_index(by)[column]


def stated(name: str) -> float:
    """Return a number that the report's text states."""
    return float(printed("statements", "value", "statement")[name])


def joined(values: Any) -> str:
    """Return figures as one text: three significant digits each, with commas."""
    return ", ".join(f"{value:.3g}" if isinstance(value, float) else str(value) for value in values)


def printed_rate() -> float:
    """Return the tokens per second that the report prints for one GPU."""
    return printed("strategies", "tokens_per_second")["baseline"]


def rate_by_seconds() -> float:
    """Return the tokens per second of the baseline's printed seconds."""
    tokens = stated("timed steps") * stated("global batch") * stated("sequence")
    return tokens / printed("strategies", "train_seconds_20_steps")["baseline"]


def tflops(model: str, tokens_per_s: float) -> float:
    """Return the TFLOP/s of a model that trains at a rate in tokens per second."""
    layers, hidden, _ = SIZES[model]
    per_token = flop_per_token(MODELS[model].parameters, layers, hidden, int(stated("sequence")))
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


def recorded() -> pd.DataFrame:
    """Return our recorded run of the report's configuration on 2 × H200, by strategy: see `reported`."""
    return reported(replay(RECORDED)).set_index("strategy")


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
    return traffic(MODELS[LARGE], strategy, GPUS)[0]
