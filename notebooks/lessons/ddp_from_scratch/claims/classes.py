"""What a report claims about the steps of naive, flat, overlapped and bucketed gradients."""

from __future__ import annotations

from typing import Any

from labkit.node import limits
from labkit.tables.claims import claim
from lessons.ddp_from_scratch.claims._printed import (
    GRADIENT_BYTES,
    REPORT,
    band_s,
    inverted,
    longer_than_naive,
    naive_steps,
    recorded_steps,
    sent_s,
    step_s,
)
from lessons.ddp_from_scratch.tables.steps import row_of

_GPU: Any = limits.spec("NVIDIA H100 80GB HBM3")  # the report says "H100"; this is the one with NVLink
_SAME = 0.02  # largest relative difference of two steps that count as equal


@claim(REPORT, "the naive step takes 0.846 s", "s", recomputes="the report's second naive step")
def naive_step():
    """The table of overlapped gradients times the naive step once more, in its row "individual", and prints 0.776 s.

    One configuration is printed twice, 9 % or 70 ms apart, and no spread is printed. So neither figure refutes the
    other, and printed times that differ by less have no order. Two steps agree within 2 %.
    """
    first, again = naive_steps()
    return first, again, True if abs(again / first - 1) <= _SAME else None


@claim(
    REPORT,
    "sending each gradient during backward makes the step shorter than naive's",
    "s",
    recomputes="the report's second naive step",
)
def overlap_helps():
    """The overlapped step lies between the report's two naive steps, 0.846 and 0.776 s, so the report cannot show it.

    Our recorded run on 2 × H200 shows it with 128 positions: 637.0 ms overlapped, 644.6 ms naive, a difference of 7.5 ±
    0.6 ms. With 32 positions the difference is within noise.
    """
    overlapped, (_, naive) = step_s("overlap_individual"), naive_steps()
    return overlapped, naive, inverted(longer_than_naive(overlapped))


@claim(
    REPORT,
    "the bucket experiment's step with individual gradients takes 0.860 s",
    "s",
    recomputes="the report's overlapped step with individual gradients",
)
def individual_again():
    """The report does not say whether gradients overlap in this row.

    Overlapped, it contradicts the other printed step of that configuration. Not overlapped, it is a third naive step.
    """
    return step_s("individual (bucket experiment)"), step_s("overlap_individual"), None


@claim(
    REPORT,
    "naive sends its gradients in 68.1 ms, 8 % of its step",
    recomputes="the least time that each link allows",
    explained=True,
)
def naive_sends():
    """Each of the two GPUs sends 8.0 GB of float32 gradients.

    The printed time is longer than the least time by NVLink, so NVLink can do it. It is shorter than the least time by
    PCIe, so PCIe cannot do it. The claim holds, and the GPUs were connected by NVLink.
    """
    printed_s = sent_s("naive")
    nvlink_s, pcie_s = (
        limits.least_seconds_to_move(GRADIENT_BYTES, rate) for rate in (_GPU.nvlink_gb_per_s, _GPU.pcie_gb_per_s)
    )
    recomputed = f"≥ {1e3 * nvlink_s:.1f} ms by NVLink, ≥ {1e3 * pcie_s:.0f} ms by PCIe"
    return f"{1e3 * printed_s:.1f} ms", recomputed, nvlink_s <= printed_s < pcie_s


@claim(
    REPORT,
    "one flat all-reduce makes the step longer than hundreds of small ones",
    "ms",
    recomputes="flat's step minus naive's, our recorded run with 128 positions",
)
def flat_is_slower():
    """The printed difference is smaller than the 70 ms by which the two naive steps differ, so it can be noise.

    In our recorded run on 2 × H200 flat is shorter, by 3.3 ± 0.5 ms. Flat's communication is printed 28.6 ms longer.
    Its two copies of all gradients take 9.5 ms at the H100's memory rate. If these are part of that communication, 23.4
    ms of the printed difference are not explained; if they are not, 13.9 ms.
    """
    longer_ms = 1e3 * (step_s("flat") - step_s("naive"))
    return longer_ms, _longer_ms("flat", "step_ms"), longer_than_naive(step_s("flat"))


@claim(
    REPORT,
    "flat's communication takes longer than naive's",
    "ms",
    recomputes="flat's wait after backward minus naive's, our recorded run with 128 positions",
)
def flat_sends_longer():
    """The printed difference is smaller than the 70 ms by which the two naive steps differ, so it can be noise.

    One call sends the same bytes as hundreds of calls, and in our recorded run on 2 × H200 flat's wait is 3.4 ms
    shorter, its two copies included. The copies take 9.5 ms at the H100's memory rate. If the report's figure includes
    them, too, 19.1 of the 28.6 ms are not explained.
    """
    longer_s = sent_s("flat") - sent_s("naive")
    return 1e3 * longer_s, _longer_ms("flat", "waited_ms"), None if abs(longer_s) <= band_s() else longer_s > 0


@claim(
    REPORT,
    "overlapped buckets make the step shorter than naive's",
    "s",
    recomputes="the report's first naive step",
)
def buckets_help():
    """The report's figures do not show it: its shortest bucketed step, printed here, is longer than both naive steps.

    But it is only 14 ms longer than the first one, and the two naive steps differ by 70 ms. In our recorded run on 2 ×
    H200 buckets make the step 19 ± 15 ms shorter with 32 positions. With 128 positions the difference is within noise.
    """
    printed = min(step_s("bucketed", size) for size in (1, 10, 100))
    return printed, step_s("naive"), inverted(longer_than_naive(printed))


@claim(
    REPORT,
    "the naive step has 32 sequences on both GPUs together, each of 128 positions",
    "ms",
    recomputes="our recorded naive step of this size, 2 × H200",
)
def batch_of_128_positions():
    """The report gives a total batch size of 32 and no number of positions.

    The float32 rates of H100 and H200 are equal. The printed steps are 1.2 and 1.3 times as long, so this size is
    possible.
    """
    return 1e3 * step_s("naive"), _naive_ms(128), None


@claim(
    REPORT,
    "the naive step has 32 sequences on both GPUs together, each of 32 positions",
    "ms",
    recomputes="our recorded naive step of this size, 2 × H200",
)
def batch_of_32_positions():
    """The report's sentence can also mean that 32 is the number of positions.

    The printed step is more than three times as long. The float32 rates of H100 and H200 are equal, so the report's
    sequences were longer.
    """
    printed, recorded_ms = 1e3 * step_s("naive"), _naive_ms(32)
    return printed, recorded_ms, printed < 2 * recorded_ms


def _naive_ms(positions: int) -> float:
    """Return our recorded naive step at the report's batch with this number of positions, in ms."""
    return float(row_of(recorded_steps(positions), "naive")["step_ms"])


def _longer_ms(strategy: str, column: str) -> float:
    """Return by how much a strategy's recorded time of 128 positions is longer than naive's, in ms."""
    table = recorded_steps(128)
    return float(row_of(table, strategy)[column] - row_of(table, "naive")[column])
