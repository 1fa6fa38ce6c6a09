"""The student's ring and the benchmarks with a bug: how each is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from labkit.course.exercises import STRETCH, WARM_UP, Exercise, Exercises
from labkit.course.judging import Mistake, judge_of
from labkit.course.lineup import line_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.story import units
from labkit.story.words import listed
from lessons.collectives.hints import HINTS
from lessons.collectives.listings import CODES
from lessons.collectives.theory import Held, Move, bus_factor, moved, start, steps_of

SYMPTOMS = {  # what is wrong with each of the benchmarks and rings that look right
    "unsynchronised": "the clock stops when the call returns, before the data are there",
    "cold": "the first call of a new group is timed, while the ranks still connect to each other",
    "wrong_factor": "bytes over time is called bus bandwidth, whatever the collective and the number of ranks",
    "no_all_gather": "the ring stops after its first half: each rank has one complete chunk",
    "rank_0_only": "all complete chunks go to rank 0 only: a test of rank 0 sees the right sum",
}
RINGS = (2, 3, 4, 5)


def settings_of(rings: Iterable[int]) -> list[tuple[int, int, int]]:
    """Return rank, step and ranks of every call that plays all rings."""
    return [(rank, step, ranks) for ranks in rings for step in range(steps_of(ranks)) for rank in range(ranks)]


SETTINGS = settings_of(RINGS)

_NEXT = "the chunk to send next is the one that came in the step before"


def judge_ring(returned: list, rings: Sequence[int] = RINGS) -> Verdict:
    """Return the verdict on what `ring_step` returns for all settings: chunk to send, chunk to receive, add or not.

    Any numbering of the chunks is right that ends with every rank holding every chunk whole.
    """
    moves = dict(zip(settings_of(rings), returned, strict=True))
    # A smaller ring shows a mistake more plainly; rings of two hide most of them.
    plainest_first = sorted(rings, key=lambda ranks: (ranks == 2, ranks))
    faults = next(filter(None, (_played(ranks, moves) for ranks in plainest_first)), {})
    merits = (
        f"in rings of {listed(map(str, rings))} every rank ends with every chunk whole, each rank's values "
        "counted once",
    )
    return Verdict("ring_step", WRONG if faults else RIGHT, faults, () if faults else merits)


def _played(ranks: int, moves: dict) -> dict[str, str]:
    """Return the first thing that goes wrong in a ring of `ranks`: at most one kind with its sentence."""
    held = start(ranks)
    for step in range(steps_of(ranks)):
        where = f"with {ranks} ranks, at step {step}"
        step_moves = [moves[rank, step, ranks] for rank in range(ranks)]
        fault = next(_misformed(step_moves, step, ranks), None) or _mismatch(step_moves, ranks)
        if fault is None:
            before, held = held, moved(held, [Move(*move) for move in step_moves])
            fault = _miscounted(before, held, step_moves, step)
        if fault:
            kind, sentence = fault
            return {kind: f"{where}, {sentence}"}
    return _unfinished(held, ranks)


def _misformed(step_moves: list, step: int, ranks: int) -> Iterator[tuple[str, str]]:
    for rank, move in enumerate(step_moves):
        if move is None and step >= ranks - 1:
            why = f"a rank has one whole chunk after {ranks - 1} steps, and as many more pass the whole chunks on"
            yield "no_gather", f"rank {rank} does nothing: {why}"
        elif not isinstance(move, list | tuple) or len(move) != 3:
            why = ": is a `return` missing?" if move is None else ""
            wanted_form = "a chunk to send, a chunk to receive, and whether to add"
            yield "form", f"rank {rank} gives {move!r:.80}, not {wanted_form}{why}"
        elif not all(isinstance(chunk, int) and not isinstance(chunk, bool) for chunk in move[:2]):
            yield "form", f"rank {rank} gives the chunks {move[0]!r} and {move[1]!r}: chunks are whole numbers"
        elif not all(0 <= chunk < ranks for chunk in move[:2]):
            why = f"there are 0 to {ranks - 1}, and a ring counts modulo N"
            yield "range", f"rank {rank} names the chunks {move[0]} and {move[1]}: {why}"
        elif not isinstance(move[2], bool):
            yield "form", f"rank {rank} gives {move[2]!r} for whether to add, not True or False"


def _mismatch(step_moves: list, ranks: int) -> tuple[str, str] | None:
    """Say where a rank files what arrives under another number than its sender gave."""
    wrong = [rank for rank in range(ranks) if step_moves[rank - 1][0] != step_moves[rank][1]]
    if not wrong:
        return None
    rank = wrong[0]
    before, after = (rank - 1) % ranks, (rank + 1) % ranks
    sentence = (
        f"rank {before} sends chunk {step_moves[before][0]}, but rank {rank} takes it for chunk {step_moves[rank][1]}"
    )
    if ranks > 2 and all(step_moves[(place + 1) % ranks][0] == step_moves[place][1] for place in range(ranks)):
        return "direction", f"{sentence}, which rank {after} sends: a rank receives from the rank before it, not after"
    return "mismatch", f"{sentence}: a rank receives what the rank before it sends"


def _miscounted(before: Held, after: Held, step_moves: list, step: int) -> tuple[str, str] | None:
    """Say where values came in twice, or were there and are lost."""
    ranks = len(after)
    for rank, (_, chunk, add) in enumerate(step_moves):
        arrived, present = before[rank - 1][step_moves[rank - 1][0]], before[rank][chunk]
        counted_twice = [other for other, count in sorted(after[rank][chunk].items()) if count > 1]
        lost = sorted(set(present) - set(after[rank][chunk]))
        if add and counted_twice:
            why = (
                "from here on what arrives is whole and replaces what is there"
                if arrived == Counter(range(ranks))
                else _NEXT
            )
            return (
                "twice",
                f"rank {rank}'s chunk {chunk} gets the values of {_ranks(counted_twice)} a second time: {why}",
            )
        if lost and step < ranks - 1:
            return "replaced", (
                f"what arrives replaces rank {rank}'s chunk {chunk}, and the values of {_ranks(lost)} in it are lost: "
                f"in the first {ranks - 1} steps it is added"
            )
        if lost:
            return "overwritten", (
                f"rank {rank}'s chunk {chunk} is replaced by a chunk without the values of {_ranks(lost)}: {_NEXT}"
            )
    return None


def _unfinished(held: Held, ranks: int) -> dict[str, str]:
    everyone = Counter(range(ranks))
    whole = sum(chunk == everyone for row in held for chunk in row)
    if whole == ranks**2:
        return {}
    sentence = f"with {ranks} ranks, only {whole} of {ranks**2} chunks are whole after all {steps_of(ranks)} steps"
    return {"unfinished": f"{sentence}: {_NEXT}"}


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {listed(map(str, numbers))}"


_LATE = 0.1  # of what the clock showed
_SAME = 0.1  # two bandwidths that are one


def verdict_of(row: dict) -> Verdict:
    """Return the verdict on one variant's row: a sentence a fault, values before times."""
    faults = _values(row) or _times(row)
    factor = row["claimed_gb_per_s"] / row["bus_gb_per_s"]
    if abs(factor - 1) > _SAME:
        faults["wrong_factor"] = (
            f"what it calls bus bandwidth is {units.times(factor)} that of the definition for {row['collective']} on "
            f"{row['ranks']} ranks: bytes over time is the *algorithm* bandwidth"
        )
    merits = ("every rank has the right values, and the clock stops when they are there",)
    return Verdict(row["variant"], WRONG if faults else RIGHT, faults, () if faults else merits)


def _values(row: dict) -> dict[str, str]:
    wrong, ranks, share = row["wrong_ranks"], row["ranks"], units.percent(row["wrong_share"])
    if not wrong:
        return {}
    if not row["wrong_on_rank_0"]:
        return {
            "rank_0_only": f"rank 0's values are right, those of {wrong} of {ranks} ranks are not: a check on rank 0 "
            "alone sees nothing"
        }
    return {
        "no_all_gather": f"{wrong} of {ranks} ranks have wrong values, {share} of all: whole sums are not passed on"
    }


def _times(row: dict) -> dict[str, str]:
    took, late, again = (row[f"{name}seconds"] for name in ("", "late_", "again_"))
    if late > _LATE * took:
        return {
            "unsynchronised": f"its clock stops after {units.seconds(took)}, {units.seconds(late)} before the data are "
            "there: it times the launch"
        }
    if not row["calls_before"]:
        return {
            "cold": f"it makes no call before its clock starts and shows {units.seconds(took)}; the same call once "
            f"more takes {units.seconds(again)}: the start-up is inside"
        }
    return {}


BANDWIDTHS = (
    ("all-reduce", 4, 10**9, 0.005),
    ("all-gather", 4, 10**9, 0.003),
    ("reduce-scatter", 8, 2**26, 0.0004),
    ("broadcast", 4, 10**9, 0.004),
    ("all-to-all", 2, 10**8, 0.001),
    ("send/recv", 2, 10**8, 0.0005),
    ("all-reduce", 2, 2**30, 0.01),
)  # collective, ranks, bytes of the message, seconds


def _bus(kind: str, ranks: int, message_bytes: float, seconds: float, unit: float = 1e9) -> float:
    return bus_factor(kind, ranks) * message_bytes / seconds / unit


def _half(kind: str, *case: Any) -> float:
    return _bus(kind, *case) / (2 if kind == "all-reduce" else 1)


def _upside_down(kind: str, ranks: int, *case: Any) -> float:
    return _bus(kind, ranks, *case) / bus_factor(kind, ranks) ** 2


judge_bandwidth = judge_of(
    "bus_bandwidth",
    BANDWIDTHS,
    _bus,
    (
        Mistake(
            "algorithm",
            lambda _, *case: _bus("broadcast", *case),
            "that is the algorithm bandwidth; multiply it by the factor of the collective",
        ),
        Mistake("one_factor", lambda _, *case: _bus("all-reduce", *case), "that is the factor of an all-reduce alone"),
        Mistake("half", _half, "an all-reduce sends each byte twice: a reduce-scatter, then an all-gather"),
        Mistake("upside_down", _upside_down, "that divides by the factor; multiply by it"),
        Mistake("binary", lambda *case: _bus(*case, unit=2**30), "a GB is 10⁹ bytes, not 2³⁰"),
        Mistake("bytes", lambda *case: _bus(*case, unit=1), "those are bytes per second"),
        Mistake(
            "shared",
            lambda kind, n, *case: _bus(kind, n, *case) * ((n - 1) / n if kind in ("broadcast", "send/recv") else 1),
            "in a broadcast and in a send the whole message crosses a link",
        ),
    ),
    asked="a number of GB/s",
    rule="multiply bytes over time by the factor: bytes on one link of a ring over bytes of the message",
    merit="every collective has its factor, so all of them compare with the rate of a link",
)

check = Exercises(
    "collectives",
    Exercise("bus_bandwidth", BANDWIDTHS, judge_bandwidth, hints=HINTS["bus_bandwidth"], grade=WARM_UP),
    Exercise("ring_step", SETTINGS, judge_ring, hints=HINTS["ring_step"], grade=STRETCH),
)
hint, solution, attempts = check.hint, check.solution, check.attempts
suspects, diagnose, show_suspects = line_up(
    "collectives", SYMPTOMS, lambda run: run.rows.to_dict("records"), verdict_of, CODES
)
