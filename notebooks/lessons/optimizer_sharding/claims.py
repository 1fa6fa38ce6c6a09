"""What a report claims about sharded AdamW states on two GPUs: of which model, its memory, its time, its formula."""

from __future__ import annotations

from operator import eq
from typing import Any

from labkit.engine.recordings import replay
from labkit.node import limits
from labkit.tables.claims import Figures, within
from labkit.tables.published import H100, published
from labkit.theory.sizes import MIB
from lessons.optimizer_sharding.tables import memory, report_peaks, report_times
from lessons.optimizer_sharding.theory import MODELS, TEMPORARY_BYTES

_ROUNDED_GB = 1.05  # two printed whole numbers, each half a unit off at most, and our own rounding
_WEIGHTS_FLOATS = 2  # per parameter: weight and gradient
_MOMENTS_FLOATS = 2


def _peaks() -> Any:
    return report_peaks(published("optimizer_sharding")).set_index(["model", "sharded"])


def _printed_peak(sharded: bool) -> float:
    return float(_peaks()["printed_gb"]["xl", sharded])


def _printed_saving() -> float:
    return _printed_peak(False) - _printed_peak(True)


def _saved_states(model: str = "xl") -> float:
    return float(_peaks()["gb"][model, False] - _peaks()["gb"][model, True])


def _saved_temporaries() -> float:
    """Return the GB of XL's square roots of moments that sharding saves, too, where torch's many kernels run."""
    return _saved_states() + float(_peaks()["parameters"]["xl", False]) * TEMPORARY_BYTES["adamw", "foreach"] / 8


def _recorded_peak(way: str) -> float:
    """Return the GB of XL's recorded peak with many kernels, which need most."""
    table = memory(replay("h200x2/optimizer_sharding/memory"))
    return table[(table["kernel"] == "foreach") & (table["way"] == way)]["peak"].max() * MIB / 1e9


def _within_rounding(printed: float, ours: float) -> bool:
    return abs(printed - ours) <= _ROUNDED_GB


def _states_saved(printed: float) -> bool | None:
    """Return whether half of XL's moments are the printed saving; None where another reading is: see the reason."""
    others = (_saved_temporaries(), _saved_states("2.7b"))
    if _within_rounding(printed, _saved_states()):
        return True
    return None if any(_within_rounding(printed, other) for other in others) else False


def _without_sharding(printed: float, recorded: float) -> bool | None:
    """Return whether a printed peak is that of XL; None where it is that of 2.7b, for the answer names no model."""
    if within(1.1)(printed, recorded):
        return True
    return None if within(1.1)(printed, float(_peaks()["gb"]["2.7b", False])) else False


def _broadcasts_ms() -> float:
    """Return the least ms in which each of two GPUs broadcasts its half of XL's weights, one after the other."""
    weights_bytes = 1e9 * float(_peaks()["parameters"]["xl", False])
    return 1e3 * limits.least_seconds_to_move(weights_bytes, H100.nvlink_gb_per_s)


def _gather_ms() -> float:
    """Return the same of an all-gather, in which both send their halves simultaneously."""
    return _broadcasts_ms() / 2


def _statement(name: str) -> str:
    return str(published("optimizer_sharding_statements").set_index("statement")["value"][name])


def _gains() -> Any:
    return (
        report_times(published("optimizer_sharding"))
        .set_index(["model", "kernel", "sending"])["gained_ms"]
        .sort_index()
    )


def _span(model: str) -> str:
    """Return by how many ms many kernels can make a step of the model shorter, by the ways to send."""
    gains = _gains()[model, "foreach"]
    return f"{gains.min():.1f} to {gains.max():.1f} ms ({MODELS[model]})"


def _possible(printed: float, *_: Any) -> bool | None:
    """Return whether the printed gain is possible: with any kernels (True), with some (None), with none (False)."""
    if not 0 < printed <= _gains().max():
        return False
    return True if printed <= _gains().xs(("fused", "gathered"), level=("kernel", "sending")).min() else None


FIGURES = {
    "model": Figures(lambda: _printed_peak(False), lambda: _recorded_peak("unsharded"), _without_sharding),
    "states_saved": Figures(
        _printed_saving,
        lambda: f"{_saved_states():.1f} or {_saved_temporaries():.1f} GB (XL), {_saved_states('2.7b'):.1f} GB (2.7b)",
        lambda printed, _: _states_saved(printed),
    ),
    "times_the_model": Figures(
        lambda: float(_statement("peak of the sharded run")),
        lambda: float(_peaks()["gb"]["2.7b", True] / _peaks()["parameters"]["2.7b", True]),
        within(1.05),
    ),
    "memory_formula": Figures(
        lambda: f"{_statement('memory per GPU')} floats",
        lambda: f"{_WEIGHTS_FLOATS}Ψ + {_MOMENTS_FLOATS}Ψ/n floats",
        eq,
    ),
    "same_step": Figures(
        lambda: float(published("optimizer_sharding").set_index("sharded")["step_seconds"]["no"]),
        lambda: float(published("ddp_from_scratch").set_index("implementation")["step_seconds"]["naive"]),
        lambda printed, naive: True if within(1.1)(printed, naive) else None,
    ),
    "step_is_shorter": Figures(
        lambda: float(report_times(published("optimizer_sharding"))["printed_ms"].iloc[0]),
        lambda: ", ".join(map(_span, MODELS)),
        _possible,
    ),
    "broadcast_or_gather": Figures(
        lambda: _statement("broadcasts beside an all-gather"),
        lambda: f"{_broadcasts_ms():.1f} ms by broadcasts, {_gather_ms():.1f} ms by an all-gather",
        lambda *_: _broadcasts_ms() < _gather_ms(),
    ),
}
