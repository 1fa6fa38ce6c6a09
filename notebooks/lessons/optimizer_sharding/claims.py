"""What a report claims about sharded AdamW states on two GPUs: of which model, its memory, its time, its formula."""

from __future__ import annotations

from typing import Any

from labkit.engine.run import replay
from labkit.tables.claims import Stated, undecided, within
from labkit.tables.published import published
from lessons.optimizer_sharding.tables import MODELS, memory, report_peaks, report_times
from lessons.optimizer_sharding.theory import TEMPORARY_BYTES

_RESULTS, _TEXT = "table of results", "text"
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
    return table[(table["kernel"] == "foreach") & (table["way"] == way)]["peak"].max() * 2**20 / 1e9


def _within_rounding(printed: float, ours: float) -> bool:
    return abs(printed - ours) <= _ROUNDED_GB


def _states_saved(printed: float, ours: float) -> bool | None:
    """Return whether half the moments are the printed saving; None where it takes halved square roots, too."""
    return _within_rounding(printed, ours) or (None if _within_rounding(printed, _saved_temporaries()) else False)


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
    return f"{gains.min():.1f} to {gains.max():.1f} ({model})"


def _possible(printed: float, *_: Any) -> bool | None:
    """Return whether the printed gain is possible: with any kernels (True), with some (None), with none (False)."""
    if not 0 < printed <= _gains().max():
        return False
    return True if printed <= _gains().xs(("fused", "gathered"), level=("kernel", "sending")).min() else None


_MOST = "XL, most memory of our recorded run on 2 × H200"
_ROWS: tuple[dict[str, Any], ...] = (
    {
        "name": "model",
        "where": _RESULTS,
        "says": "XL needs 55 GB at its peak without sharding",
        "printed": lambda: _printed_peak(False),
        "recomputed": lambda: _recorded_peak("unsharded"),
        "recomputes": _MOST,
        "holds": within(1.1),
        "unit": "GB",
        "reason": "The 2.7b model fits without whole square roots: 16 bytes per parameter are 54.5 GB, 12 are 40.9.",
    },
    {
        "name": "sharded_model",
        "where": _RESULTS,
        "says": "XL needs 42 GB at its peak with sharded states",
        "printed": lambda: _printed_peak(True),
        "recomputed": lambda: _recorded_peak("zero_redundancy"),
        "recomputes": f"{_MOST}, torch's sharded optimizer",
        "holds": within(1.1),
        "unit": "GB",
        "reason": "A peak with activations would shrink by 8 GB. At the update none are left to fill the rest.",
    },
    {
        "name": "states_saved",
        "where": _RESULTS,
        "says": "Sharding the states makes XL's peak 13 GB smaller",
        "printed": _printed_saving,
        "recomputed": _saved_states,
        "recomputes": "half of two moments",
        "holds": _states_saved,
        "unit": "GB",
        "reason": "With halved square roots it is 12.0; rounding allows 12 to 14. The 2.7b model's are 13.6 GB.",
    },
    {
        "name": "times_the_model",
        "where": _TEXT,
        "says": "The sharded peak is 4 times the model",
        "printed": lambda: float(_statement("peak of the sharded run")),
        "recomputed": lambda: float(_peaks()["gb"]["2.7b", True] / _peaks()["parameters"]["2.7b", True]),
        "recomputes": "parameters, gradients, half of two moments",
        "holds": within(1.05),
        "unit": "× the model",
        "digits": 2,
        "reason": "Its own list names three things. Three times the 2.7b model are 40.9 GB, near the printed 42.",
    },
    {
        "name": "memory_formula",
        "where": _TEXT,
        "says": "ZeRO-1 in float32 holds 4Ψ + KΨ/n floats per GPU",
        "printed": lambda: f"{_statement('memory per GPU')} floats",
        "recomputed": lambda: f"{_WEIGHTS_FLOATS}Ψ + {_MOMENTS_FLOATS}Ψ/n floats",
        "holds": lambda printed, ours: printed == ours,
        "reason": "The expression is the ZeRO paper's, in bytes, for mixed precision: 2 + 2, and K = 12.",
    },
    {
        "name": "step_is_shorter",
        "where": _RESULTS,
        "says": "Sharding makes a step 12 ms shorter, although it sends more",
        "printed": lambda: float(report_times(published("optimizer_sharding"))["printed_ms"].iloc[0]),
        "recomputed": lambda: ", ".join(map(_span, MODELS)),
        "recomputes": "with many kernels, at an H100's rates",
        "holds": _possible,
        "unit": "ms",
        "reason": "One fused kernel gains nothing. A loop over parameters runs many, and holds no whole roots.",
    },
    {
        "name": "states_and_temporaries_saved",
        "where": _RESULTS,
        "says": "The 13 GB are XL's, if torch's many kernels ran",
        "printed": _printed_saving,
        "recomputed": _saved_temporaries,
        "recomputes": "the moments' square roots are halved, too",
        "holds": undecided,
        "unit": "GB",
        "reason": "The difference fits within rounding. Both peaks are 13 to 14 GB above XL's.",
        "chosen": False,
    },
)
CLAIMS = tuple(Stated(report="cs336-a2", **row) for row in _ROWS)
