"""What the node's card shows of lab 05: GPT-2 Large on one GPU, and replicated over all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.tables.key_figures import KeyFigure, Measured, most_per_second, repeats, workers
from labkit.theory.gpt import flop_per_token, gpt

if TYPE_CHECKING:
    from labkit.engine.run import Run

_RUNG = "one graph"


def _flop_per_token(run: Run) -> float:
    plan = run.plan
    parameters = gpt(plan.layers, plan.hidden, plan.words, plan.sequence).parameters
    return flop_per_token(parameters, plan.layers, plan.hidden, plan.sequence)


def _tokens(run: Run) -> Measured | None:
    rows = run.rows
    rung = rows[rows["knob"] == _RUNG]
    if rung.empty:
        return None
    batch = int(rung["batch"].iloc[0])
    setting = f"{run.plan.layers} layers, batch {batch}, {run.plan.sequence} tokens, bfloat16, one graph"
    time = Measured.of(repeats(run, "step_ms", knob=_RUNG), setting)
    limit = most_per_second(run, _flop_per_token(run), "bfloat16")
    return time and time.rate(1e3 * batch * run.plan.sequence, limit)


def _efficiency(run: Run) -> Measured | None:
    known = {"load": "large", "ranks": run.plan.gpus}
    alone = Measured.of(repeats(run, "step_ms", load="large", strategy="single"), "")
    steps = repeats(run, "step_ms", strategy="ddp", **known)
    setting = f"{run.plan.layers} layers, {run.plan.large} samples per GPU, {workers(run)}"
    return Measured.of([100 * alone.value / step for step in steps] if alone else [], setting, 100)


KEY_FIGURES = (
    KeyFigure("GPT-2 Large, one GPU", "tokens/s", "ladder", _tokens, least_gpus=1),
    KeyFigure("GPT-2 Large, DDP's efficiency", "%", "strategies", _efficiency, least_gpus=2),
)
