"""One clock for the ranks of all nodes: each node's own monotonic clock began when that node was booted.

The first rank of each node asks rank 0 for its time over gloo. Rank 0 looks at its clock between question and answer,
so the shortest of several round trips bounds the error (F. Cristian, Probabilistic clock synchronization, 1989).
"""

from __future__ import annotations

from time import perf_counter

ROUNDS = 32
_ahead_s = 0.0  # by how much this node's clock is ahead of the clock of rank 0's node


def now() -> float:
    """Return what time.perf_counter() shows now on rank 0's node."""
    return perf_counter() - _ahead_s


def align_clocks(rank: int, ranks: int, nodes: int) -> dict[str, float]:
    """Measure by how much this node's clock is ahead; every rank calls it. Return `ahead_us` and `round_trip_us`.

    `ahead_us` is wrong by half of the round trip at most, apart from later drift.
    """
    import torch
    import torch.distributed as dist

    global _ahead_s
    workers = ranks // nodes
    measured = torch.zeros(nodes, 2, dtype=torch.float64)
    for node in range(1, nodes):
        leader = node * workers
        if rank == 0:
            _answer_followers(leader)
        elif rank == leader:
            measured[node] = torch.tensor(_measure_offset(), dtype=torch.float64)
    dist.all_reduce(measured)
    _ahead_s, round_trip_s = measured[rank // workers].tolist()
    return {"ahead_us": 1e6 * _ahead_s, "round_trip_us": 1e6 * round_trip_s}


def _measure_offset() -> tuple[float, float]:
    """Return by how much this clock is ahead of rank 0's, and the round trip behind that, in seconds."""
    import torch
    import torch.distributed as dist

    theirs, asked_times = torch.zeros(1, dtype=torch.float64), []
    for _ in range(ROUNDS):
        asked = perf_counter()
        dist.send(theirs, 0)
        dist.recv(theirs, 0)
        answered = perf_counter()
        asked_times.append((answered - asked, (asked + answered) / 2 - theirs.item()))
    round_trip_s, ahead_s = min(asked_times)
    return ahead_s, round_trip_s


def _answer_followers(leader: int) -> None:
    """Tell the time to the first rank of another node, as often as it asks."""
    import torch
    import torch.distributed as dist

    mine = torch.zeros(1, dtype=torch.float64)
    for _ in range(ROUNDS):
        dist.recv(mine, leader)
        mine.fill_(perf_counter())
        dist.send(mine, leader)
