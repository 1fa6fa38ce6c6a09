"""What each collective sends through a link, and in how many steps, when the ranks stand in a ring."""

from __future__ import annotations

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all", "send/recv")
GB = 1e9


def bus_factor(collective: str, ranks: int) -> float:
    """Give the share of a message that each rank sends: what turns algorithm into bus bandwidth.

    2(N−1)/N of an all-reduce; (N−1)/N of an all-gather, a reduce-scatter and an all-to-all, whose message is that of
    all ranks together; all of a broadcast and of a send (nccl-tests, doc/PERFORMANCE.md). With it, a bus bandwidth
    compares with a link's rate for any number of ranks.
    """
    ring = (ranks - 1) / ranks
    return {"all-reduce": 2 * ring, "broadcast": 1.0, "send/recv": 1.0}.get(collective, ring)


def hops(collective: str, ranks: int) -> int:
    """Give how many messages follow each other, from rank to rank, before the last rank has its result."""
    return {"all-reduce": 2 * (ranks - 1), "send/recv": 1}.get(collective, ranks - 1)


def algorithm_gb_per_s(message_bytes: float, seconds: float) -> float:
    """Give the message over the time: how fast it looks to who called it."""
    return message_bytes / seconds / GB


def bus_gb_per_s(collective: str, ranks: int, message_bytes: float, seconds: float) -> float:
    """Give what a link carried a second, had the ranks stood in a ring."""
    return bus_factor(collective, ranks) * algorithm_gb_per_s(message_bytes, seconds)


def seconds(collective: str, ranks: int, message_bytes: float, hop_s: float, link_gb_per_s: float) -> float:
    """Give the time of a ring: a latency each hop, and the bytes through a link at its rate.

    For an all-reduce 2(N−1)·α + 2(N−1)/N·s/β.
    """
    moved = bus_factor(collective, ranks) * message_bytes
    return hops(collective, ranks) * hop_s + moved / (GB * link_gb_per_s)
