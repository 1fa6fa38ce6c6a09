"""The exercises of lab 09: bus bandwidth, a step of the ring, and the bugs in benchmarks that look right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from IPython.display import HTML

from labkit.course.exercises import CORE, WARM_UP, Cases, Exercise, Exercises, Trial, compared
from labkit.course.judging import Mistake, not_the_form
from labkit.course.lineup import line_up, why, with_bugs
from labkit.course.verdict import Verdict
from labkit.story import units
from labkit.story.words import listed
from lessons.collectives.plan import Ring
from lessons.collectives.tables import LATE, ring_lines, symptoms
from lessons.collectives.theory import COLLECTIVES, Held, Move, bus_factor, chunk_lengths, moved, start, steps_of

if TYPE_CHECKING:
    from labkit.engine.run import Run


def _messages(random: Random) -> list:
    """Return collective, ranks, bytes of the message and seconds; send/recv joins two ranks."""
    cases = []
    for name in COLLECTIVES:
        for ranks in (2,) if name == "send/recv" else (random.randint(2, 3), random.randint(9, 15)):
            cases.append((name, ranks, random.randint(10**5, 10**9), random.uniform(1e-4, 1e-2)))
    return cases


def _bus(collective: str, ranks: int, message_bytes: float, seconds: float, unit: float = 1e9) -> float:
    return bus_factor(collective, ranks) * message_bytes / seconds / unit


def _half(collective: str, *case: Any) -> float:
    return _bus(collective, *case) / (2 if collective == "all-reduce" else 1)


def _upside_down(collective: str, ranks: int, *case: Any) -> float:
    return _bus(collective, ranks, *case) / bus_factor(collective, ranks) ** 2


def _shared(collective: str, ranks: int, *case: Any) -> float:
    whole = collective in ("broadcast", "send/recv")
    return _bus(collective, ranks, *case) * ((ranks - 1) / ranks if whole else 1)


_BUS_BANDWIDTH = compared(
    "bus_bandwidth",
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
        Mistake("shared", _shared, "in a broadcast and in a send the whole message crosses a link"),
    ),
    result_form="a number of GB/s",
    rule="multiply bytes over time by the factor: bytes on one link of a ring over bytes of the message",
    merit="every collective has its factor, so all of them compare with the rate of a link",
    grade=WARM_UP,
    cases=Cases(_messages),
    hints=(
        "Bytes over time is the algorithm bandwidth. How many bytes cross one link of a ring, compared with the "
        "message?",
        "A factor for each collective: 2(N − 1)/N for an all-reduce, all of it for a broadcast and a send, (N − "
        "1)/N for the rest.",
        "`share = (ranks - 1) / ranks`. Look the factor up in a dict, with `.get(collective, share)`. Return "
        "`factor * message_bytes / seconds / 1e9`.",
    ),
)


def _rings(random: Random) -> list[tuple[int, int, int]]:
    """Return rank, step and ranks of every call that plays whole rings: of 2 and 3 ranks, and of three more."""
    rings = (2, 3, *sorted(random.sample(range(4, 13), 3)))
    return [(rank, step, ranks) for ranks in rings for step in range(steps_of(ranks)) for rank in range(ranks)]


_NEXT = "the chunk to send next is the one that came in the step before"


def judge_ring(returned: list, settings: Sequence[Sequence[int]]) -> Verdict:
    """Return the verdict on what `ring_step` returns for all settings: chunk to send, chunk to receive, add or not.

    Any numbering of the chunks is right that ends with every rank holding every chunk whole.
    """
    moves = dict(zip(map(tuple, settings), returned, strict=True))
    rings = dict.fromkeys(ranks for _, _, ranks in settings)
    # A smaller ring shows a mistake more plainly; rings of two hide most of them.
    plainest_first = sorted(rings, key=lambda ranks: (ranks == 2, ranks))
    faults = next(filter(None, (_ring_faults(ranks, moves) for ranks in plainest_first)), {})
    merit = f"in rings of {listed(rings)} every rank ends with every chunk whole, each rank's values counted once"
    return Verdict.of_faults("ring_step", faults, merit)


def _ring_faults(ranks: int, moves: dict) -> dict[str, str]:
    """Return the first thing that goes wrong in a ring of `ranks`: at most one kind with its sentence."""
    held = start(ranks)
    for step in range(steps_of(ranks)):
        step_moves = [moves[rank, step, ranks] for rank in range(ranks)]
        fault = next(_form_faults(step_moves, step, ranks), None) or next(_number_faults(step_moves, ranks), None)
        if fault is None:
            before, held = held, moved(held, [Move(*move) for move in step_moves])
            fault = next(_count_faults(before, held, step_moves, step), None)
        if fault:
            return {fault[0]: f"with {ranks} ranks, at step {step}, {fault[1]}"}
    whole = sum(chunk == Counter(range(ranks)) for row in held for chunk in row)
    if whole == ranks**2:
        return {}
    last = f"only {whole} of {ranks**2} chunks are whole after all {steps_of(ranks)} steps"
    return {"unfinished": f"with {ranks} ranks, {last}: {_NEXT}"}


def _form_faults(step_moves: list, step: int, ranks: int) -> Iterator[tuple[str, str]]:
    """Yield for each rank whose move is none: its kind and a sentence."""
    for rank, move in enumerate(step_moves):
        if move is None and step >= ranks - 1:
            why_so = f"a rank has one whole chunk after {ranks - 1} steps, and as many more pass the whole chunks on"
            yield "no_gather", f"rank {rank} does nothing: {why_so}"
        elif not isinstance(move, list | tuple) or [type(part) for part in move] != [int, int, bool]:
            yield "form", f"rank {rank} gives {not_the_form(move, 'two whole numbers and True or False')}"
        elif not all(0 <= chunk < ranks for chunk in move[:2]):
            why_so = f"there are 0 to {ranks - 1}, and a ring counts modulo N"
            yield "range", f"rank {rank} names the chunks {move[0]} and {move[1]}: {why_so}"


def _number_faults(step_moves: list, ranks: int) -> Iterator[tuple[str, str]]:
    """Yield for each rank that files what arrives under another number than its sender gave."""
    for rank in range(ranks):
        sent, taken = step_moves[rank - 1][0], step_moves[rank][1]
        if sent != taken:
            before = (rank - 1) % ranks
            sentence = f"rank {before} sends chunk {sent}, but rank {rank} takes it for chunk {taken}"
            yield "mismatch", f"{sentence}: a rank receives what the rank before it sends"


def _count_faults(before: Held, after: Held, step_moves: list, step: int) -> Iterator[tuple[str, str]]:
    """Yield for each rank where values came in twice, or were there and are lost."""
    ranks = len(after)
    for rank, (_, chunk, add) in enumerate(step_moves):
        twice = [other for other, count in sorted(after[rank][chunk].items()) if count > 1]
        lost = sorted(set(before[rank][chunk]) - set(after[rank][chunk]))
        whole_came = before[rank - 1][step_moves[rank - 1][0]] == Counter(range(ranks))
        if add and twice:
            why_so = "from here on what arrives is whole and replaces what is there" if whole_came else _NEXT
            yield "twice", f"rank {rank}'s chunk {chunk} gets the values of {_ranks(twice)} a second time: {why_so}"
        elif lost and step < ranks - 1:
            why_so = f"in the first {ranks - 1} steps it is added"
            what = f"what arrives replaces rank {rank}'s chunk {chunk}, and the values of {_ranks(lost)} are lost"
            yield "replaced", f"{what}: {why_so}"
        elif lost:
            yield "overwritten", f"rank {rank}'s chunk {chunk} loses the values of {_ranks(lost)}: {_NEXT}"


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {listed(numbers)}"


def _rings_to_try(file: str, *, size: str = "small", gpus: int = 0) -> list[Ring]:
    return [Ring.sized(size, gpus=gpus, yours=file)]


def judge_run(run: Run) -> Verdict:
    """Return the verdict on the ring of a Ring run whose steps are the student's, with its time beside two others."""
    rows, faults = run.rows[run.rows["method"] == "yours"], {}
    for row in rows.itertuples():
        where = f"with {row.ranks} ranks and a message of {row.bytes} B"
        lengths = chunk_lengths(row.elements, row.ranks)
        if row.status != "ok":
            faults.setdefault("wrong_sums", f"{where}, the sums differ from those that must come out: {_NEXT}")
        elif not min(lengths) <= row.sent_bytes / 4 / steps_of(row.ranks) <= max(lengths):
            faults.setdefault("bytes", f"{where}, rank 0 sends {row.sent_bytes:.0f} B: a chunk in each step is enough")
    lines = ring_lines(run)
    longest = lines[lines["bytes"] == lines["bytes"].max()].set_index("method")
    yours, ours, library = (units.seconds(longest.at[name, "median_us"] / 1e6) for name in ("yours", "ours", "library"))
    size = units.size(longest.at["yours", "bytes"])
    return Verdict.of_faults(
        "ring_step",
        faults,
        f"on {run.plan.workers_text} every length gets the right sums, and rank 0 sends one chunk in each step",
        f"an all-reduce of {size} takes {yours} with your step, {ours} with the reference solution, and the library's "
        f"{library}",
    )


check = Exercises(
    "collectives",
    _BUS_BANDWIDTH,
    Exercise(
        "ring_step",
        judge=judge_ring,
        trial=Trial(_rings_to_try, judge_run),
        grade=CORE,
        cases=Cases(_rings),
        hints=(
            "Follow one chunk around a ring of three ranks with pencil and paper. Which rank adds to it last?",
            "At each step a rank sends the chunk that came in the step before. What arrives is added during the first"
            " N − 1 steps, and replaces what is there after that. All numbers count modulo N.",
            "`send = (rank - step) % ranks`. The rank before sends `(rank - 1 - step) % ranks`, so that is the chunk "
            "to receive. `add` is true while `step < ranks - 1`.",
        ),
    ),
)
hint, solution, attempts, yours = check.hint, check.solution, check.attempts, check.yours

SYMPTOMS = {  # what is wrong with each of the benchmarks and rings that look right
    "unsynchronised": "the clock stops when the call returns, before the data are there",
    "wrong_factor": "bytes over time is called bus bandwidth, whatever the collective and the number of ranks",
    "no_all_gather": "the ring stops after its first half: each rank has one complete chunk",
}


def verdict_of(row: dict) -> Verdict:
    """Return the verdict on one benchmark's symptoms."""
    took, late, faults = units.seconds(row["seconds"]), units.seconds(row["late_seconds"]), {}
    if row["wrong_ranks"]:
        wrong = f"{row['wrong_ranks']} of {row['ranks']} ranks have wrong values"
        faults["no_all_gather"] = f"{wrong}, {units.percent(row['wrong_share'])} of all: whole sums are not passed on"
    if row["late_seconds"] > LATE * row["seconds"]:
        faults["unsynchronised"] = (
            f"its clock stops after {took}, {late} before the data are there: it times the launch"
        )
    if abs(row["claimed_gb_per_s"] / row["bus_gb_per_s"] - 1) > LATE:
        claimed, right = (units.rate(row[f"{name}_gb_per_s"]) for name in ("claimed", "bus"))
        faults["wrong_factor"] = f"it claims {claimed} where its time makes {right}"
    return Verdict.of_faults(
        row["variant"], faults, "its clock waits, its factor is the collective's, and every rank's values are right"
    )


_RING = """
def ring_all_reduce(chunks):
    for step in range(2 * (ranks - 1)):
        send, receive, add = ring_step(rank, step, ranks)
        arrived = pass_on(chunks[send])
        if add:
            arrived = chunks[receive] + arrived
        chunks[receive] = arrived
"""
_CLOCK = """
def bus_bandwidth(call, message_bytes):
    call()
    seconds = []
    for _ in range(repeats):
        barrier()
        start = clock()
        call()
        synchronize()
        seconds.append(clock() - start)
    factor = factor_of(collective, ranks)
    return factor * message_bytes / median(seconds)
"""
_CODES = with_bugs(
    _RING,
    {"no_all_gather": [("2 * (ranks - 1)", "ranks - 1")]},
) | with_bugs(
    _CLOCK,
    {
        "unsynchronised": [("        synchronize()\n", "")],
        "wrong_factor": [("factor_of(collective, ranks)", "1")],
    },
)
suspects, diagnose, show_suspects = line_up("collectives", SYMPTOMS, symptoms, verdict_of, _CODES)


def why_so_long() -> HTML:
    """Ask why the smallest message takes so many times as long as its bytes need."""
    return why(
        "The links move 1 KiB in a few nanoseconds. Why does the call take thousands of times as long?",
        (
            "Launching and waiting take the time",
            "Host and driver launch the call; at every hop a rank waits for the one before. No size changes that.",
        ),
        (
            "A link is slow at small messages",
            "The link sends these bytes at its rate. It stands idle before and after.",
        ),
        ("NCCL copies the message first", "A copy of 1 KiB takes nanoseconds of memory traffic, too."),
    )
