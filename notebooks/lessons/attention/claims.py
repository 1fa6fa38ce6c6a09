"""What a report says of attention's times and memory, recomputed from physics, its own tables and our runs."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from labkit.engine.run import replay
from labkit.tables.claims import Stated, undecided
from labkit.tables.published import published
from lessons.attention.tables import printed
from lessons.attention.tables.memory import compiled_gains, held
from lessons.attention.tables.speed import sweep
from lessons.attention.theory import SQUARES

RECORDED_GAINS, RECORDED_MEMORY = "h200/attention/compiled", "h100/attention/plain"
RECORDED_SWEEP = "h100/attention/sweep"
_SAME, _WHOLE = 0.03, 0.01  # agreement of two times; of a fitted count with a whole number


def _times(phase: str) -> pd.DataFrame:
    table = printed.printed_times(published("attention"))
    return table[table["phase"] == phase]


def _flash() -> pd.DataFrame:
    return printed.printed_flash_times(published("flash_attention"))


def _span(values: Any, unit: str = "×", scale: float = 1.0) -> str:
    """Return the least and the most of the values with two digits: "1.1 to 1.6×"."""
    least, most = (f"{scale * value:.2g}" for value in (min(values), max(values)))
    return f"{least if least == most else f'{least} to {most}'}{unit}"


def _possible(*tables: pd.DataFrame) -> int:
    """Return how many of the times can be times of the work."""
    return sum(int((table["verdict"] == "ok").sum()) for table in tables)


def _longest_forward() -> pd.Series:
    table = _times("forward").query("sequence == 16384 and head_dim == 64 and implementation == 'by_hand'")
    return table.loc[table["ms"].idxmin()]


def _forward_growth() -> pd.DataFrame:
    return printed.growth(_times("forward"), 4096, 16384)


def _short_growth() -> pd.DataFrame:
    return printed.growth(_flash(), 128, 1024)


def _follows(growth: pd.DataFrame) -> bool:
    return bool((growth["exponent"] >= 1).all())


def _twice() -> pd.Series:
    return printed.printed_backwards(_times("backward"))["ratio"]


def _gains(phase: str) -> pd.DataFrame:
    gains = compiled_gains(replay(RECORDED_GAINS), published("attention"))
    return gains[gains["phase"] == phase]


def _unchanged(column: str) -> int:
    """Return how many backwards compiling leaves as fast as they were, where they are longer than their launches."""
    return int(((_long_backwards()[column] - 1).abs() <= _SAME).sum())


def _long_backwards() -> pd.DataFrame:
    return _gains("backward").query("sequence >= 4096")


def _held() -> pd.Series:
    """Return the printed memory before backward at 16 384 positions and d = 64, and what the fit says of it."""
    return printed.printed_memory(published("attention")).query("sequence == 16384 and head_dim == 64").iloc[0]


def _half() -> float:
    """Return what plain attention holds before backward, over what it holds with a softmax written by hand."""
    sizes = held(replay(RECORDED_MEMORY)).query("sequence == 16384 and head_dim == 64")
    sizes = sizes.set_index("implementation")["held_mib"]
    return sizes["plain"] / sizes["by_hand"]


def _speedups() -> pd.Series:
    return printed.printed_speedups(_flash()).query("phase == 'forward' and sequence == 32768")["speedup"]


def _own_speedups() -> pd.Series:
    """Return the same of our recorded sweep."""
    table = sweep(replay(RECORDED_SWEEP)).query("phase == 'forward' and sequence == 32768")
    return table["speed_up"].dropna()


def _precisions() -> pd.Series:
    """Return the times of float32 over those of bfloat16, of Triton's forward at 32 768 positions."""
    table = printed.printed_precisions(_flash())
    return table.query("implementation == 'flash' and phase == 'forward' and sequence == 32768")["ratio"]


def _best_shares() -> list[float]:
    """Return the best float32 rate over the peak without tensor cores, and bfloat16's over the peak with them."""
    return [printed.printed_precisions(_flash())[f"share_of_{units}"].max() for units in ("fp32", "bf16")]


def _fixed(phase: str) -> pd.DataFrame:
    return printed.fixed_shares(_flash()).query(f"implementation == 'flash' and phase == '{phase}'")


_stated = partial(Stated, report="cs336-a2")
_FIRST, _COMPILE, _TRITON = "table of plain attention", "table of torch.compile", "table of its Triton kernel"

CLAIMS = (
    _stated(
        name="forward_times",
        where=f"{_FIRST}, {_COMPILE}",
        says="60 forward times of plain attention",
        printed=lambda: len(_times("forward")),
        recomputed=lambda: _possible(_times("forward")),
        recomputes="the most that can be times of the work",
        holds=lambda printed, recomputed: printed == recomputed,
        reason="32 are shorter than an H100 needs, most others do not grow: this clock stopped at the launch.",
        unit="times",
    ),
    _stated(
        name="forward_at_the_longest",
        where=_FIRST,
        says="Forward at 16 384 positions and d = 64 takes this long",
        printed=lambda: _longest_forward()["ms"],
        recomputed=lambda: _longest_forward()["least_ms"],
        recomputes="the least that an H100 needs for the memory traffic alone",
        holds=lambda printed, recomputed: printed >= recomputed,
        reason="No kernel that builds the N×N matrix is faster, even with 126 MiB of cache, a B200's. An H100 has 50.",
        unit="ms",
    ),
    _stated(
        name="forward_growth",
        where=f"{_FIRST}, {_COMPILE}",
        says="From 4 096 to 16 384 positions forward takes this much longer",
        printed=lambda: _span(_forward_growth()["time"]),
        recomputed=lambda: _span(_forward_growth()["work"]),
        recomputes="growth of the work",
        holds=lambda *_: _follows(_forward_growth()),
        reason="A time that hardly grows is a launch, not the work.",
    ),
    _stated(
        name="waited_times",
        where="all tables",
        says="60 backward times of plain attention and 144 times of the Triton table",
        printed=lambda: len(_times("backward")) + len(_flash()),
        recomputed=lambda: _possible(_times("backward"), _flash()),
        recomputes="those that can be times of the work",
        holds=lambda printed, recomputed: printed == recomputed,
        reason="Backward grows 10 to 20 times where work grows 16 times: this clock waited.",
        unit="times",
    ),
    _stated(
        name="compiled_forward",
        where=_COMPILE,
        says="Compiled, the forward is this much faster (20 settings)",
        printed=lambda: _span(_gains("forward")["printed_gain"]),
        recomputed=lambda: _span(_gains("forward")["gain"]),
        recomputes="our recorded run, 1 × H200",
        holds=lambda *_: bool((_gains("forward")["gain"] >= 1).all()),
        reason="The report compares launches. Waited for, compiling gains little at 16 384 and loses at the shortest.",
    ),
    _stated(
        name="memory_before_backward",
        where=_FIRST,
        says="Memory before backward at 16 384 positions and d = 64",
        printed=lambda: _held()["memory_gb"],
        recomputed=lambda: _held()["memory_gb"] - _held()["left_mb"] / 1e3,
        recomputes="two N×N matrices and what grows with N",
        holds=lambda *_: bool(abs(_held()["squares"] - SQUARES["by_hand"]["held"]) <= _WHOLE),
        reason="A softmax written by hand keeps exp(S − max) and P. Torch's keeps P alone.",
        unit="GB",
        digits=4,
    ),
    _stated(
        name="halved",
        where="answer on eliminating this memory",
        says="This memory can be halved",
        printed=lambda: "½",
        recomputed=lambda: f"{_half():.3f}",
        recomputes="torch's softmax in place of one by hand, 1 × H100",
        holds=lambda *_: bool(abs(_half() - 0.5) <= _WHOLE),
        reason="The question was how to eliminate it: half of N² still grows as N².",
    ),
    _stated(
        name="short_times",
        where=_TRITON,
        says="From 128 to 1 024 positions times grow this much",
        printed=lambda: _span(_short_growth()["time"]),
        recomputed=lambda: _span(_short_growth()["work"]),
        recomputes="growth of the work",
        holds=lambda *_: _follows(_short_growth()),
        reason="These are mostly launches. Here Triton's forward is slower than PyTorch's in 10 of 12 settings.",
    ),
    _stated(
        name="backward_twice",
        where=f"{_FIRST}, {_COMPILE}",
        says="Eager backward, its first table over its second",
        printed=lambda: _span(_twice()),
        recomputed=lambda: "1×",
        recomputes="the same work twice",
        holds=lambda *_: bool(((_twice() - 1).abs() <= 0.1).all()),
        reason="17 of 20 differ by more than 10 %; at 16 384 positions by 22 passes over an N×N matrix.",
        chosen=False,
    ),
    _stated(
        name="compiled_backward",
        where=_COMPILE,
        says="From 4 096 positions on, compiling leaves this many of 12 backwards as fast as eager (within 3 %)",
        printed=lambda: _unchanged("printed_gain"),
        recomputed=lambda: _unchanged("gain"),
        recomputes="our recorded run, 1 × H200",
        holds=lambda printed, recomputed: printed == recomputed,
        reason="With torch 2.11 each gains 5 % or more. Most likely theirs ran uncompiled.",
        unit="settings",
        chosen=False,
    ),
    _stated(
        name="triton_wins",
        where=_TRITON,
        says="At 32 768 positions Triton's forward is faster than PyTorch's in every setting",
        printed=lambda: _span(_speedups()),
        recomputed=lambda: _span(_own_speedups()),
        recomputes="our recorded sweep, 1 × H100",
        holds=lambda *_: bool(min(_speedups().min(), _own_speedups().min()) > 1),
        reason="It reads no N×N matrix, so it gains most where this matrix is large and the head dimension small.",
        chosen=False,
    ),
    _stated(
        name="precisions",
        where=_TRITON,
        says="Triton's forward at 32 768 positions takes as long in float32 as in bfloat16",
        printed=lambda: _span(_precisions()),
        recomputed=lambda: " and ".join(f"{share:.0%}".replace("%", " %") for share in _best_shares()),
        recomputes="of an H100's peaks at best; under half, products limit neither",
        holds=lambda *_: bool(_precisions().max() < 1.1 and max(_best_shares()) < 0.5),
        reason="Products limit neither, so tensor cores that are 15 times as fast gain nothing.",
        chosen=False,
    ),
    _stated(
        name="matrices_in_backward",
        where=_TRITON,
        says="The part of its backward, d = 128, that no smaller head dimension saves",
        printed=lambda: _span(_fixed("backward")["share"], " %", 100),
        recomputed=lambda: _span(_fixed("forward")["share"], " %", 100),
        recomputes="the same part of its forward",
        holds=undecided,
        reason="It lasts 19 to 20 passes over an N×N matrix: most likely this backward builds matrices.",
        chosen=False,
    ),
)
