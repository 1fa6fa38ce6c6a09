"""What the study says of speed: its rate, its precision, its ranking and its projection."""

from __future__ import annotations

from typing import Any

import pandas as pd

from labkit.tables.claims import within
from labkit.tables.published import published
from lessons.sharding.claims.report import (
    GPUS,
    H100,
    LARGE,
    MODELS,
    NEAR,
    OUR_RUN,
    SAME,
    STRATEGIES,
    TEXT,
    equal,
    joined,
    printed,
    printed_rate,
    rate_by_seconds,
    recorded,
    stated,
    stated_rows,
    tflops,
)

_PROFILE = "profile of a window"
_ALIKE = within(1.04)  # speed-ups on other GPUs that count as equal
_NAMES = {"ddp": "DDP", "fsdp_full": "full", "fsdp_grad": "gradient-only"}


def _in_float32() -> bool:
    operators = published("gpt2_operators")["operation"]
    matrix_products = printed("statements", "value", "statement")["kernel of matrix products"]
    names = [*operators[operators.str.contains("AllReduce")], matrix_products]
    return all("f32" in name for name in names)


def _models_at_the_rate() -> str:
    by_seconds = tflops(LARGE, rate_by_seconds())
    return joined(name for name in MODELS if NEAR(tflops(name, printed_rate()), by_seconds)) or "none"


def _ranked_names(ranked: pd.Series) -> str:
    return joined(_NAMES[strategy] for strategy in ranked.index)


def _seconds() -> pd.Series:
    """Return the printed seconds of 20 steps on two GPUs, the fastest strategy first."""
    return printed("strategies", "train_seconds_20_steps").drop("baseline").sort_values()


def _slower(slowest: float, fastest: float) -> float:
    return 100 * (slowest / fastest - 1)


def _differences_hold(*_figures: Any) -> bool:
    """Return whether rounding to 0.1 s allows our difference, and our steps differ beyond noise in the same order."""
    seconds, rounded = _seconds(), 0.05
    least, most = (_slower(seconds.iloc[-1] + sign * rounded, seconds.iloc[0] - sign * rounded) for sign in (-1.0, 1.0))
    steps = recorded().loc[seconds.index, ["step_ms", "spread_step_ms"]]
    later, earlier = (steps.shift(count).iloc[1:] for count in (0, 1))
    apart = (later["step_ms"] - earlier["step_ms"]) > later["spread_step_ms"] + earlier["spread_step_ms"]
    return bool(least <= _slower(steps["step_ms"].iloc[-1], steps["step_ms"].iloc[0]) <= most and apart.all())


def _recorded_difference() -> float:
    steps = recorded().loc[_seconds().index, "step_ms"]
    return _slower(steps.iloc[-1], steps.iloc[0])


def _lost() -> tuple[pd.Series, pd.Series]:
    """Return the printed loss of efficiency, and that by one GPU's seconds over twice those of two, in percent."""
    lost, seconds = printed("breakdown", "loss_percent").dropna(), printed("strategies", "train_seconds_20_steps")
    return lost, 100 * (1 - seconds["baseline"] / (GPUS * seconds[lost.index]))


def _on_two(column: str) -> list[float]:
    """Return a column of our run of the report's configuration: DDP's, full sharding's, gradient-only's."""
    return recorded().loc[["ddp", "fsdp_full", "fsdp_grad"], column].tolist()


def _projected_speedups(least: bool) -> Any:
    last = published("gpt2_projection").iloc[-1]
    if least:
        return last["gpus"] * (1 - last["communication_percent"] / 100)
    return joined(last[["ddp_speedup", "fsdp_speedup"]].tolist())


CLAIMS = stated_rows(
    {
        "name": "rate_in_float32",
        "where": STRATEGIES,
        "says": "GPT-2 Large trains at 32 582 tokens/s on one H100",
        "printed": lambda: round(tflops(LARGE, printed_rate())),
        "recomputed": lambda: H100.tflops("fp32"),
        "recomputes": "the most in float32, which its kernels name",
        "holds": lambda needed, most: needed <= 1.02 * most,
        "unit": "TFLOP/s",
        "chosen": True,
        "reason": "By its printed seconds GPT-2 Large does 30 TFLOP/s, GPT-2 small at the printed rate about the same.",
    },
    {
        "name": "ranking",
        "where": _PROFILE,
        "says": "Ranked by efficiency: gradient-only, then DDP, then full sharding",
        "printed": lambda: _ranked_names(
            printed("breakdown", "compute_percent").drop("baseline").sort_values(ascending=False)
        ),
        "recomputed": lambda: _ranked_names(_seconds()),
        "recomputes": "by its own seconds",
        "holds": equal,
        "chosen": True,
        "reason": "It ranks by the share of computing in a window. Our recorded steps have the order of its seconds.",
    },
    {
        "name": "rate",
        "where": STRATEGIES,
        "says": "One GPU reaches 32 582 tokens/s",
        "printed": printed_rate,
        "recomputed": rate_by_seconds,
        "recomputes": "20 steps of 32 × 1024 tokens, by its seconds",
        "holds": SAME,
        "unit": "tokens/s",
        "digits": 4,
        "reason": "Its own seconds give 5.6 times less, by the same factor in every row.",
    },
    {
        "name": "measured_rate",
        "where": STRATEGIES,
        "says": "One GPU reaches 32 582 tokens/s",
        "printed": printed_rate,
        "recomputed": lambda: recorded().loc["single", "tokens_per_s"],
        "recomputes": OUR_RUN,
        "holds": NEAR,
        "unit": "tokens/s",
        "reason": "In float32 with plain attention a newer GPU is far slower, near the rate of its own seconds.",
    },
    {
        "name": "model_of_the_rate",
        "where": STRATEGIES,
        "says": "The model that reaches 32 582 tokens/s is GPT-2 Large",
        "printed": lambda: LARGE,
        "recomputed": _models_at_the_rate,
        "recomputes": "whose TFLOP/s at this rate are those of the seconds",
        "holds": lambda model, models: model in models.split(", "),
        "reason": "GPT-2 small at the printed rate does 28 TFLOP/s, GPT-2 Large by the printed seconds 30.",
    },
    {
        "name": "precision",
        "where": TEXT,
        "says": "The training runs in FP16 mixed precision",
        "printed": lambda: printed("statements", "value", "statement")["precision"],
        "recomputed": lambda: "float32" if _in_float32() else "mixed",
        "recomputes": "by the kernels' names",
        "holds": lambda _, precision: precision != "float32",
        "reason": "The kernels are AllReduce_Sum_f32 for gradients and gemm_f32f32_f32f32_f32 for products.",
    },
    {
        "name": "differences",
        "where": STRATEGIES,
        "says": "The strategies differ on two GPUs: slowest over fastest",
        "printed": lambda: round(_slower(_seconds().iloc[-1], _seconds().iloc[0]), 2),
        "recomputed": _recorded_difference,
        "recomputes": OUR_RUN,
        "holds": _differences_hold,
        "unit": "%",
        "digits": 2,
        "reason": "Single timings without a spread do not decide less than 1 %. Our steps, ± 0.7 ms at most, do.",
    },
    {
        "name": "efficiency_lost",
        "where": _PROFILE,
        "says": "DDP, full and gradient-only lose 0.51, 0.89 and 0.16 % of efficiency",
        "printed": lambda: f"{joined(_lost()[0])} %",
        "recomputed": lambda: f"{joined(_lost()[1].round(1))} %",
        "recomputes": "by its own seconds",
        "holds": lambda *_: bool(((_lost()[0] / _lost()[1] - 1).abs() <= 0.1).all()),
        "reason": "The printed figures are differences between shares of computing, each of another window.",
    },
    {
        "name": "fewer_all_reduces",
        "where": TEXT,
        "says": "Accumulation makes all-reduces 4 times fewer",
        "printed": lambda: stated("fewer all-reduces by accumulation"),
        "recomputed": lambda: stated("global batch") / (2 * stated("micro-batch")),
        "recomputes": "micro-batches per GPU and step",
        "holds": SAME,
        "unit": "×",
        "reason": "32 sequences, 8 at a time on each of two GPUs, are two micro-batches: one exchange instead of two.",
    },
    {
        "name": "projected_speed",
        "where": "projection",
        "says": "On 8 GPUs DDP and FSDP are 6.8 and 7.2 times as fast; communication takes 4 %",
        "printed": lambda: _projected_speedups(least=False),
        "recomputed": lambda: _projected_speedups(least=True),
        "recomputes": "8 GPUs less 4 %",
        "holds": lambda speedups, least: min(float(one) for one in speedups.split(", ")) >= 0.98 * least,
        "unit": "×",
        "reason": "The printed speed-ups lose 15 and 10 %. The rest has no explanation.",
    },
    {
        "name": "speedups",
        "where": STRATEGIES,
        "says": "DDP, full and gradient-only are 1.93, 1.91 and 1.92 times as fast on two GPUs",
        "printed": lambda: joined(_on_two("printed_speedup")),
        "recomputed": lambda: joined(_on_two("speedup")),
        "recomputes": f"{OUR_RUN}; agreement is within 4 %",
        "holds": lambda *_: all(map(_ALIKE, _on_two("printed_speedup"), _on_two("speedup"))),
        "unit": "×",
        "reason": "The speed-ups are 3 to 4 % apart, on other GPUs.",
    },
    {
        "name": "links",
        "where": TEXT,
        "says": "PCIe carries 32 GB/s, NVLink 900 GB/s",
        "printed": lambda: joined([stated("PCIe"), stated("NVLink")]),
        "recomputed": lambda: joined([H100.pcie_gb_per_s, round(stated("NVLink") / 2)]),
        "recomputes": "an H100's, in one direction",
        "holds": equal,
        "unit": "GB/s",
        "reason": "900 GB/s adds both directions of NVLink; 32 GB/s is one direction of PCIe 4. An H100 has PCIe 5.",
    },
)
