"""Find the bug: benchmarks and rings that look right. `SYMPTOMS` says what each of the suspects shows."""

from __future__ import annotations

SYMPTOMS = {
    "unsynchronised": "the clock stops when the call returns, before the data are there",
    "cold": "the first call of a new group is timed: the ranks first have to reach each other",
    "wrong_factor": "bytes over time is called bus bandwidth, whatever the collective and the number of ranks",
    "no_all_gather": "the ring stops after its first half: each rank has one complete chunk",
    "rank_0_only": "the complete chunks go to rank 0 alone: whoever looks there sees the right sum",
}
