"""What a report says of attention's times and memory, recomputed from physics, its own tables and our runs."""

from __future__ import annotations

from typing import Any

import pandas as pd

from labkit.engine.run import replay
from labkit.tables.claims import claim
from labkit.tables.published import published
from lessons.attention.tables import printed
from lessons.attention.tables.memory import compiled_gains, held
from lessons.attention.theory import SQUARES

RECORDED_GAINS, RECORDED_MEMORY = "h200/attention/compiled", "h100/attention/plain"
_REPORT = "cs336-a2"
_LENGTHS, _SHORT = (4096, 16384), (128, 1024)  # spans of sequence lengths: long in one table, short in the other
_SAME, _WHOLE = 0.03, 0.01  # agreement of two times; of a fitted count with a whole number


def _times() -> pd.DataFrame:
    return printed.printed_times(published("attention"))


def _flash() -> pd.DataFrame:
    return printed.printed_flash_times(published("flash_attention"))


def _span(values: Any, unit: str = "×", scale: float = 1.0) -> str:
    """Return the least and the most of the values with two digits: "1.1 to 1.6×"."""
    least, most = (f"{scale * value:.2g}" for value in (min(values), max(values)))
    return f"{least if least == most else f'{least} to {most}'}{unit}"


def _possible(table: pd.DataFrame) -> tuple[int, int, bool]:
    allowed = int((table["verdict"] == "ok").sum())
    return len(table), allowed, allowed == len(table)


@claim(
    _REPORT,
    "so many forward times of plain attention were measured",
    "times",
    recomputes="the most that can be times of the work",
)
def forward_times():
    """24 eager times are shorter than an H100 needs to write the scores and read them once, even if 126 MiB of each
    matrix stay in a cache (an H100 has 50). 8 compiled times are shorter than its products take at the rate of TF32. Of
    the other 28 most are launches, too: up to 1 024 positions all take 0.10 to 0.17 ms. A GPU launches work and
    returns: whoever does not synchronise before the clock stops measures the launch. Our own clock that does not wait
    shows the same."""
    times = _times()
    return _possible(times[times["phase"] == "forward"])


@claim(
    _REPORT,
    "forward at 16 384 positions and head dimension 64 takes this long",
    "ms",
    recomputes="the least that an H100 needs for the memory traffic alone",
)
def forward_at_the_longest():
    """No kernel that builds the N×N matrix can be faster, even if 126 MiB of each matrix stay in a cache (an H100 has
    50)."""
    times = _times().query(
        "phase == 'forward' and sequence == 16384 and head_dim == 64 and implementation == 'by_hand'"
    )
    row = times.loc[times["ms"].idxmin()]
    return row["ms"], row["least_ms"], row["ms"] >= row["least_ms"]


@claim(_REPORT, "forward grows this much from 4 096 to 16 384 positions")
def forward_growth():
    """Work grows 16 times over this span. A time that hardly grows is a launch, not the work."""
    grown = printed.growth(_times(), *_LENGTHS).query("phase == 'forward'")
    return _span(grown["time"]), _span(grown["work"]), bool((grown["exponent"] >= 1).all())


@claim(_REPORT, "backward grows this much from 4 096 to 16 384 positions")
def backward_growth():
    """Backward follows the work, so it was waited for."""
    grown = printed.growth(_times(), *_LENGTHS).query("phase == 'backward'")
    return _span(grown["time"]), _span(grown["work"]), bool((grown["exponent"] >= 1).all())


@claim(_REPORT, "so many backward times of plain attention were measured", "times")
def backward_times():
    """No backward time is shorter than an H100 needs."""
    times = _times()
    return _possible(times[times["phase"] == "backward"])


@claim(_REPORT, "so many times of the Triton table were measured", "times")
def flash_times():
    """No time of the second table is shorter than an H100 needs."""
    return _possible(_flash())


@claim(_REPORT, "eager backward takes the same time in both of its tables (first over second)")
def backward_twice():
    """Most settings differ by more than 10 %, so the two tables did not time the same work. At 16 384 positions the
    surplus hardly depends on the head dimension and equals about 22 passes over an N×N matrix: extra work on scores,
    not another product."""
    ratio = printed.printed_backwards(_times())["ratio"]
    return "1×", _span(ratio), bool(((ratio - 1).abs() <= 0.1).all())


@claim(_REPORT, "torch.compile speeds up the forward (20 settings)")
def compiled_forward():
    """The printed forward times are launches, so their ratio is a gain in launching. Waited for on an H200, compiling
    gains next to nothing at 16 384 positions, some between, and loses at the shortest lengths, where a compiled
    function takes longer to launch."""
    gains = _gains("forward")
    return _span(gains["printed_gain"]), _span(gains["gain"]), bool((gains["gain"] >= 1).all())


@claim(
    _REPORT,
    "torch.compile leaves most of 20 backwards as fast as eager (within 3 %)",
    "settings",
    recomputes="our recorded run, 1 × H200",
)
def compiled_backward():
    """On an H200 with torch 2.11 every compiled backward from 4 096 positions on is at least 5 % faster than eager. The
    report's 13 unchanged times suggest that these backwards ran uncompiled. Its other 7 gained 7 to 34 %."""
    gains = _gains("backward")
    same = [int(((gains[column] - 1).abs() <= _SAME).sum()) for column in ("printed_gain", "gain")]
    return same[0], same[1], same[0] == same[1]


def _gains(phase: str) -> pd.DataFrame:
    gains = compiled_gains(replay(RECORDED_GAINS), published("attention"))
    return gains[gains["phase"] == phase]


@claim(_REPORT, "memory before backward at 16 384, d = 64, is that of a softmax written by hand", "GB", digits=4)
def memory_before_backward():
    """Two N×N matrices, exp(S − max) and P, four N×d tensors, 12 bytes per row and a workspace of 64 MiB. That is what
    a softmax written by hand keeps; torch's softmax keeps one matrix."""
    table = printed.printed_memory(published("attention")).query("sequence == 16384 and head_dim == 64").iloc[0]
    whole = abs(table["squares"] - SQUARES["by_hand"]["held"]) <= _WHOLE
    return table["memory_gb"], table["memory_gb"] - table["left_mb"] / 1e3, bool(whole)


@claim(_REPORT, "this memory can be halved")
def halved():
    """Torch's softmax keeps P alone, and bfloat16 takes half of float32's bytes. Either halves the N×N matrices, and
    half of N² still grows as N². The tiles of FlashAttention keep none."""
    sizes = held(replay(RECORDED_MEMORY)).query("sequence == 16384 and head_dim == 64").set_index("implementation")
    share = sizes.loc["plain", "held_mib"] / sizes.loc["by_hand", "held_mib"]
    return "½", f"{share:.3f}", bool(abs(share - 0.5) <= _WHOLE)


@claim(_REPORT, "Triton's forward is faster in bfloat16 than in float32 (ratio of times at 32 768)")
def bfloat16_forward():
    """The printed times agree within 1 %. Tensor cores multiply bfloat16 at twice the rate of TF32 and 15 times that of
    float32, so the kernel gains nothing from them."""
    ratio = printed.printed_precisions(_flash()).query(
        "implementation == 'flash' and phase == 'forward' and sequence == 32768"
    )
    return _span(ratio["ratio"]), "2 to 15×", bool((ratio["ratio"] > 1.1).all())


@claim(_REPORT, "the best float32 rate needs tensor cores", "TFLOP/s", recomputes="an H100's peak without tensor cores")
def float32_rate():
    """The best rate is 30 % of that peak, so it needs none. It is 4 % of TF32's peak, so it does not exclude them
    either."""
    rates = printed.printed_precisions(_flash())
    best = rates.loc[rates["float32_tflops"].idxmax()]
    peak = best["float32_tflops"] / best["share_of_fp32"]
    return best["float32_tflops"], peak, bool(best["share_of_fp32"] > 1)


@claim(
    _REPORT, "the best bfloat16 rate uses the tensor cores", "TFLOP/s", recomputes="an H100's peak with tensor cores"
)
def bfloat16_rate():
    """The best rate is 2 % of that peak: if tensor cores work, they wait most of the time. It is also below the 67
    TFLOP/s that an H100 reaches in float32 without them."""
    rates = printed.printed_precisions(_flash())
    best = rates.loc[rates["bfloat16_tflops"].idxmax()]
    peak = best["bfloat16_tflops"] / best["share_of_bf16"]
    return best["bfloat16_tflops"], peak, True if best["share_of_bf16"] > 0.1 else None


@claim(_REPORT, "beyond 1 024 positions Triton's forward is faster than PyTorch's")
def triton_wins():
    """Triton reads no N×N matrix, so it gains most where that matrix is large and the head dimension small."""
    speedup = printed.printed_speedups(_flash()).query("phase == 'forward' and sequence > 1024")["speedup"]
    return _span(speedup), "more than 1×", bool((speedup > 1).all())


@claim(_REPORT, "up to 1 024 positions Triton's forward is faster than PyTorch's")
def triton_loses():
    """It loses in 10 of 12 settings. At these lengths the times are mostly launches, as the next two claims show."""
    speedup = printed.printed_speedups(_flash()).query("phase == 'forward' and sequence <= 1024")["speedup"]
    return _span(speedup), "more than 1×", bool((speedup > 1).all())


@claim(_REPORT, "from 128 to 1 024 positions the times of the Triton table are those of the work (growth)")
def short_times():
    """Work grows 64 times. What hardly grows is the launch."""
    grown = printed.growth(_flash(), *_SHORT)
    return _span(grown["time"]), _span(grown["work"]), bool((grown["exponent"] >= 1).all())


@claim(_REPORT, "up to 1 024 positions forward and backward, each timed alone, add up to both together (their share)")
def short_parts():
    """Two measurements of the same work should add up, within 5 %. What both together take more is launched between
    them."""
    share = printed.printed_parts(_flash()).query("sequence <= 1024")["share"]
    return _span(share, " %", 100), "100 %", bool((share > 0.95).all())


@claim(_REPORT, "the Triton table goes to the longest sequence that the assignment asks for", "positions")
def longest_sequence():
    """The assignment asks for 65 536 positions. Plain attention's backward takes 69 GB of N×N matrices there in
    float32, and FlashAttention takes none."""
    longest = int(_flash()["sequence"].max())
    return longest, printed.ASKED, longest >= printed.ASKED


@claim(
    _REPORT,
    "Triton's backward works by tiles (share of its time, at head dimension 128, that no head dimension shortens)",
    recomputes="the same share of Triton's forward",
)
def backward_by_tiles():
    """In an attention by tiles almost all time goes into products, which grow with the head dimension, as the forward's
    14 % shows. The rest of Triton's backward lasts as long as 19 to 20 passes over an N×N matrix. PyTorch's plain
    backward, which has such matrices, has an even larger share: 65 to 76 %, 32 to 36 passes. So Triton's behaves like
    matrices, not tiles."""
    fixed = printed.fixed_shares(_flash()).query("implementation == 'flash'").groupby("phase")["share"]
    backward, forward = (fixed.get_group(phase) for phase in ("backward", "forward"))
    return _span(backward, " %", 100), _span(forward, " %", 100), bool(backward.min() <= 2 * forward.max())
