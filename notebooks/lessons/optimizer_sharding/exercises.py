"""The exercises of lab 11: a whole checkpoint from pieces, equal shares, and the bug in a sharded optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

from IPython.display import HTML

from labkit.course.exercises import CORE, WARM_UP, Cases, Exercise, Exercises, compared
from labkit.course.judging import Mistake, not_the_form
from labkit.course.lineup import line_up, why, with_bugs
from labkit.course.verdict import Verdict
from labkit.story import units
from lessons.optimizer_sharding.tables import faults, symptoms
from lessons.optimizer_sharding.theory import rank_loads

SYMPTOMS = {
    "sends_nothing": "every rank updates its part and keeps it: replicas drift apart",
    "own_part": "the state_dict holds this rank's part; the rest of each moment is zero",
    "stale_rate": "the optimizers inside keep the learning rate that they were made with",
}
SETTINGS = (  # elements of each parameter, ranks
    ([6, 6, 6, 6], 2),
    ([10, 1, 1], 2),
    ([7, 5, 8, 3, 3], 3),
    ([1600 * 10_000, *[1600, 1600 * 1600, 6400 * 1600] * 2, 1600], 4),
    ([3, 2], 8),
)


def judge_shards(returned: list, settings: Sequence[tuple[list[int], int]]) -> Verdict:
    """Return the verdict on shards: for each of `settings` a list per rank, of (parameter, begin, end)."""
    faults: dict[str, str] = {}
    for (sizes, ranks), parts in zip(settings, returned, strict=True):
        fault = (
            _form_fault(parts, ranks)
            or _bounds_fault(parts, sizes)
            or _coverage_fault(parts, sizes)
            or _balance_fault(parts, sizes, ranks)
        )
        if fault:
            faults.setdefault(fault[0], f"for {_sizes_text(sizes)} on {ranks} ranks, {fault[1]}")
    return Verdict.of_faults("shards", faults, "every element has one owner, and no rank has more than an equal part")


def _sizes_text(sizes: list[int]) -> str:
    if len(sizes) > 5:
        return f"{len(sizes)} parameters with {units.count(sum(sizes))} elements in all"
    return f"{' + '.join(map(str, sizes))} elements"


def _form_fault(parts, ranks: int) -> tuple[str, str] | None:
    if not isinstance(parts, list) or not all(isinstance(part, list) for part in parts):
        return "form", f"it returns {not_the_form(parts, 'a list per rank')}"
    pieces = [piece for part in parts for piece in part]
    for piece in pieces:
        numbers = isinstance(piece, list | tuple) and all(type(number) is int for number in piece)
        if not numbers or len(piece) != 3:
            return "form", f"a piece is {piece!r:.60}, not three whole numbers (parameter, begin, end)"
    if len(parts) != ranks:
        return "ranks", f"it returns {len(parts)} list{'' if len(parts) == 1 else 's'}, and {ranks} ranks need {ranks}"
    return None


def _bounds_fault(parts: list, sizes: list[int]) -> tuple[str, str] | None:
    for number, begin, end in (piece for part in parts for piece in part):
        if not 0 <= number < len(sizes):
            return "bounds", f"a piece is of parameter {number}, and the last parameter is {len(sizes) - 1}"
        if not 0 <= begin <= end <= sizes[number]:
            return (
                "bounds",
                f"a piece has elements {begin} to {end} of parameter {number}, which has {sizes[number]} elements",
            )
        if begin == end:
            return "empty", f"a piece of parameter {number} is empty ({begin} to {end})"
    return None


def _coverage_fault(parts: list, sizes: list[int]) -> tuple[str, str] | None:
    for number, size in enumerate(sizes):
        at = 0
        for begin, end in sorted((piece[1], piece[2]) for part in parts for piece in part if piece[0] == number):
            if begin < at and all(part == parts[0] for part in parts) and not _coverage_fault(parts[:1], sizes):
                return (
                    "alias",
                    "all ranks have the same pieces: give each a list of its own (`[[]] * ranks` repeats one list)",
                )
            if begin < at:
                return "twice", f"element {begin} of parameter {number} has two owners: both would update it"
            if begin > at:
                return "missing", f"element {at} of parameter {number} has no owner: it would never change"
            at = end
        if at < size:
            return "missing", f"element {at} of parameter {number} has no owner: it would never change"
    return None


def _balance_fault(parts: list, sizes: list[int], ranks: int) -> tuple[str, str] | None:
    held = [sum(end - begin for _, begin, end in part) for part in parts]
    total = sum(sizes)
    share = -(-total // ranks)
    if max(held) <= share:
        return None
    whole = all(end - begin == sizes[number] for part in parts for number, begin, end in part)
    why = ""
    if whole and sorted(held) == sorted(rank_loads(sizes, ranks, "by number")):
        why = ": parameters are dealt out by their number"
    elif whole:
        why = ": no parameter is cut" + (f", and one alone has {max(sizes)}" if max(sizes) > share else "")
    elif max(held) == total - (ranks - 1) * (total // ranks):
        why = ": one rank gets all that is left over after the division"
    return "uneven", f"a rank has {max(held)} elements, and an equal part is {share}{why}"


def verdict_of(row: dict) -> Verdict:
    """Return the verdict on one variant's symptoms: a sentence a fault."""
    sentences = {
        "sends_nothing": f"replicas are {units.percent(row['drift'])} of a weight apart: updates are not sent",
        "stale_rate": f"the first step is right, and the last {units.percent(row['error'])} off: the rate fell, and "
        "the optimizers inside did not see it",
        "own_part": f"{units.percent(row['saved'])} of the numbers in its state_dict are right: the other ranks' "
        "part is not in it",
        "wrong": f"after one step a weight is {units.percent(row['first_error'])} off",
    }
    wrong = {kind: sentences[kind] for kind in faults(row)}
    return Verdict.of_faults(row["variant"], wrong, "values and state_dict are right")


PIECES = (
    ([4], [[[0, 0, 2, [1.0, 2.0]]], [[0, 2, 4, [3.0, 4.0]]]]),
    ([3, 2], [[[0, 0, 3, [1.0, 2.0, 3.0]]], [[1, 0, 2, [4.0, 5.0]]]]),
    ([2, 3], [[[1, 1, 3, [4.0, 5.0]]], [[0, 0, 2, [1.0, 2.0]], [1, 0, 1, [3.0]]]]),
    ([5], [[[0, 3, 5, [4.0, 5.0]]], [[0, 1, 3, [2.0, 3.0]]], [[0, 0, 1, [1.0]]]]),
    ([1, 1, 1], [[[2, 0, 1, [3.0]], [0, 0, 1, [1.0]]], [[1, 0, 1, [2.0]]], []]),
)  # elements of each parameter, and each rank's pieces: parameter, begin, end, values


def _gathered_parameters(sizes: list[int], parts: list[list], begins: bool = True) -> list[list[float]]:
    """Return the values of each parameter; without `begins`, as the ranks have them, one after another."""
    pieces = [piece for part in parts for piece in part]
    ordered = sorted(pieces, key=lambda piece: piece[1]) if begins else pieces
    return [[value for piece in ordered if piece[0] == number for value in piece[3]] for number in range(len(sizes))]


def _values_of_rank_0(sizes: list[int], parts: list[list]) -> list[list[float]]:
    whole = [[0.0] * size for size in sizes]
    for number, begin, end, values in parts[0]:
        whole[number][begin:end] = values
    return whole


def _pieces(random: Random) -> list:
    """Return parameters cut into pieces, and these dealt out to ranks in no order."""
    drawn = []
    for _ in range(4):
        sizes, pieces = [random.randint(1, 6) for _ in range(random.randint(1, 4))], []
        for number, size in enumerate(sizes):
            values = [float(random.randint(-9, 9)) for _ in range(size)]
            cuts = sorted({0, size, *random.sample(range(size + 1), min(2, size))})
            pieces += [[number, begin, end, values[begin:end]] for begin, end in pairwise(cuts)]
        random.shuffle(pieces)
        ranks = random.randint(2, 4)
        drawn.append((sizes, [pieces[rank::ranks] for rank in range(ranks)]))
    return drawn


_GATHERED = compared(
    "gathered",
    _gathered_parameters,
    (
        Mistake(
            "own_part",
            _values_of_rank_0,
            "that is the part of rank 0 with zeros beside it; the other ranks have the rest",
        ),
        Mistake(
            "rank_order",
            lambda sizes, parts: _gathered_parameters(sizes, parts, begins=False),
            "ranks need not hold the pieces in order: `begin` says where a piece belongs",
        ),
        Mistake(
            "flat",
            lambda sizes, parts: [value for parameter in _gathered_parameters(sizes, parts) for value in parameter],
            "that is one list of all numbers; return one list per parameter",
        ),
        Mistake(
            "per_rank",
            lambda sizes, parts: [[value for piece in part for value in piece[3]] for part in parts],
            "that is one list per rank; return one list per parameter",
        ),
    ),
    result_form="a list of numbers for each parameter",
    rule="each piece belongs to its parameter, from element `begin` to `end`",
    merit="every rank's pieces are where they belong, so a checkpoint holds all of the state",
    inputs=PIECES,
    grade=WARM_UP,
    cases=Cases(_pieces),
    hints=(
        "Take `sizes = [4]`, the piece `(0, 0, 2, [1.0, 2.0])` on rank 0 and `(0, 2, 4, [3.0, 4.0])` on rank 1. "
        "Write down the whole moment by hand.",
        "`whole` already has a list of zeros for each parameter. Go through all pieces of all ranks, and write "
        "the values of each over its elements.",
        "`whole = [[0.0] * size for size in sizes]`. For each piece `(parameter, begin, end, values)`: "
        "`whole[parameter][begin:end] = values`.",
    ),
)


def _sizes(random: Random) -> list:
    return [
        ([random.randint(1, 5000) for _ in range(random.randint(2, 9))], ranks)
        for ranks in random.sample(range(2, 9), 4)
    ]


check = Exercises(
    "optimizer_sharding",
    _GATHERED,
    Exercise(
        "shards",
        SETTINGS,
        judge_shards,
        grade=CORE,
        cases=Cases(_sizes),
        hints=(
            "Lay all parameters end to end. Where does the part of rank 1 begin?",
            "A rank's part is ⌈total / ranks⌉ elements. Go through the parameters and cut one wherever a rank's "
            "part ends inside it. A parameter may be cut more than once.",
            "Keep `at`, the number of elements that are given out. While a parameter has elements left: `rank = at "
            "// share`, `end = min(size, begin + (rank + 1) * share - at)`, append `(number, begin, end)` to that "
            "rank, then move `at` and `begin` on.",
        ),
    ),
)
hint, solution, attempts = check.hint, check.solution, check.attempts

_RIGHT = """
class Sharded:
    def __init__(self, parameters, kind, **options):
        numbers = flat(parameters)
        self.parts = equal_parts(numbers, ranks)
        self.inner = kind(self.parts[rank], **options)

    def step(self):
        groups = zip(self.inner.groups, self.groups)
        for inside, outside in groups:
            inside["lr"] = outside["lr"]
        self.inner.step()
        for owner, part in enumerate(self.parts):
            broadcast(part, src=owner)

    def state_dict(self):
        states = all_gather(self.inner.state_dict())
        return joined(states)
"""
_CODES = with_bugs(
    _RIGHT,
    {
        "sends_nothing": [
            ("        for owner, part in enumerate(self.parts):\n            broadcast(part, src=owner)\n", "")
        ],
        "own_part": [("all_gather(self.inner.state_dict())", "[self.inner.state_dict()]")],
        "stale_rate": [
            (
                "        groups = zip(self.inner.groups, self.groups)\n"
                '        for inside, outside in groups:\n            inside["lr"] = outside["lr"]\n',
                "",
            )
        ],
    },
)
suspects, diagnose, show_suspects = line_up("optimizer_sharding", SYMPTOMS, symptoms, verdict_of, _CODES)


def why_shorter() -> HTML:
    """Ask why a sharded update can be shorter although it sends all parameters."""
    return why(
        "A sharded update sends 4 GB more through each link. Why can it still be shorter?",
        (
            "Each rank updates half the elements",
            "Many kernels move 80 bytes per element through memory, and only 4 are sent.",
        ),
        ("NVLink is faster than the GPU's memory", "No: 478 GB/s against 4 800 GB/s on an H200."),
        ("The gradients are sent only once", "They are all-reduced as before. Only the update is shared out."),
    )
