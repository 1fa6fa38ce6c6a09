"""What a report claims about the steps of naive, flat, overlapped and bucketed gradients."""

from __future__ import annotations

from typing import Any

from labkit.engine.run import replay
from labkit.labs.ddp_from_scratch.claims._printed import GRADIENT_BYTES, REPORT, RUNS, naive_steps, sent_s, step_s
from labkit.labs.ddp_from_scratch.tables.steps import implementations, row_of
from labkit.node import limits
from labkit.tables.claims import claim

_GPU: Any = limits.spec("NVIDIA H100 80GB HBM3")  # the report says "H100"; this is the one with NVLink
_SAME = 0.02  # largest relative difference of two steps that count as equal


@claim(REPORT, "the naive step takes 0.846 s", "s", recomputes="the report's second naive step")
def naive_step():
    """The table of overlapped gradients times the naive step once more, in its row "individual", and prints 0.776 s.

    One configuration is printed twice, 9 % apart, and no spread is printed. Smaller differences between other steps
    prove nothing.
    """
    first, again = naive_steps()
    return first, again, abs(again / first - 1) <= _SAME


@claim(
    REPORT,
    "sending each gradient during backward makes the step shorter than naive's",
    "s",
    recomputes="the report's second naive step",
)
def overlap_helps():
    """The same table prints a naive step that is 20 ms shorter than the overlapped one.

    Only the naive step of the other table, 0.846 s, is longer than the overlapped step.
    """
    overlapped, (_, naive) = step_s("overlap_individual"), naive_steps()
    return overlapped, naive, overlapped < naive


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
    recomputes="flat's step minus naive's, our recorded run",
)
def flat_is_slower():
    """Recomputed is the difference of the steps in our recorded run on 2 × H200: flat is shorter there.

    Flat copies all gradients twice, which takes 9.5 ms at the H100's memory rate, and its communication is printed 28.6
    ms longer. The other 13.9 ms of the printed difference are not explained.
    """
    table = implementations(replay(RUNS + "implementations"))
    flat, naive = row_of(table, "flat"), row_of(table, "naive")
    longer_ms = flat["step_ms"] - naive["step_ms"]
    beyond_noise = abs(longer_ms) > flat["spread_step_ms"] + naive["spread_step_ms"]
    return 1e3 * (step_s("flat") - step_s("naive")), longer_ms, longer_ms > 0 if beyond_noise else None


@claim(
    REPORT,
    "flat's communication takes longer than naive's",
    "ms",
    recomputes="flat's wait minus naive's, our recorded run",
)
def flat_sends_longer():
    """One call sends the same bytes as hundreds of calls, so it should need less time, not more.

    Recomputed is the difference in our recorded run on 2 × H200, with flat's two copies included.
    """
    table = implementations(replay(RUNS + "implementations"))
    longer_ms = row_of(table, "flat")["waited_ms"] - row_of(table, "naive")["waited_ms"]
    return 1e3 * (sent_s("flat") - sent_s("naive")), longer_ms, longer_ms > 0


@claim(
    REPORT,
    "overlapped buckets make the step shorter than naive's",
    "s",
    recomputes="the report's first naive step",
)
def buckets_help():
    """Printed is the shortest bucketed step.

    No bucket size beats either of the two naive steps, although naive hides nothing.
    """
    printed = min(step_s("bucketed", size) for size in (1, 10, 100))
    return printed, step_s("naive"), printed < min(naive_steps())


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
    printed, ours = 1e3 * step_s("naive"), _naive_ms(32)
    return printed, ours, printed < 2 * ours


def _naive_ms(positions: int) -> float:
    """Return our recorded naive step at the report's batch with this number of positions, in ms."""
    return float(row_of(implementations(replay(f"{RUNS}report_{positions}")), "naive")["step_ms"])
