"""The student's exercises: the CPUs close to a GPU, and the slowest link of a ring."""

from __future__ import annotations

from labkit.course.exercises import CORE, WARM_UP, Exercise, Exercises
from labkit.course.judging import Mistake, judge_of
from lessons.topology.hints import HINTS

AFFINITIES = (("0-3",), ("0-3,8-11",), ("5",), ("0-1,4,6-7",), ("10-12",), ("0-19,64-83",), ("N/A",))
CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS")  # after NVLink, from the shortest path to the longest
_ORDER = "from fast to slow: NV with many links, NV with few, PIX, PXB, PHB, NODE, SYS"
_PAIRS = [
    ["X", "NV4", "SYS", "SYS"],
    ["NV4", "X", "PIX", "SYS"],
    ["SYS", "PIX", "X", "NV4"],
    ["SYS", "SYS", "NV4", "X"],
]
_MIXED = [
    ["X", "NV12", "NV4", "PHB"],
    ["NV12", "X", "NV12", "NV4"],
    ["NV4", "NV12", "X", "PXB"],
    ["PHB", "NV4", "PXB", "X"],
]
_SWITCH = [["X" if row == column else "NV18" for column in range(4)] for row in range(4)]
# Two neighbours in the order of speed each, with numbers of links that come in no table of GPUs as well.
_NEIGHBOURS = (
    ("NV12", "NV9"),
    ("NV9", "NV1"),
    ("NV1", "PIX"),
    ("PIX", "PXB"),
    ("PXB", "PHB"),
    ("PHB", "NODE"),
    ("NODE", "SYS"),
)
_HOST = [line.split() for line in ("X PIX PHB", "PIX X PXB", "PHB PXB X")]
RINGS = (
    ([0, 1, 2, 3], _SWITCH),
    ([0, 1, 2, 3], _PAIRS),
    ([1, 2], _PAIRS),
    ([0, 1, 2], _MIXED),
    ([0, 1, 3, 2], _MIXED),
    ([1, 0, 2], _MIXED),
    ([0, 1], _MIXED),
    ([0, 2, 1], _HOST),
    ([1, 2], _HOST),
    ([0, 1], _HOST),
    ([3, 0], _MIXED),
    *(([1, 2, 0], [["X", fast, slow], [fast, "X", fast], [slow, fast, "X"]]) for fast, slow in _NEIGHBOURS),
)  # GPUs in the order of the ring, and the matrix of `nvidia-smi topo -m`


def _parts(text: str) -> list[tuple[int, int]]:
    if text == "N/A":
        return []
    ends = [part.split("-") for part in text.split(",")]
    return [(int(pair[0]), int(pair[-1])) for pair in ends]


def _hops(matrix: list[list[str]], ring: list[int]) -> list[str]:
    return [matrix[a][b] for a, b in zip(ring, ring[1:] + ring[:1], strict=True)]


def _distance(path: str) -> tuple[int, int]:
    """Return what orders paths from fast to slow: NVLink before PCIe, and more links before fewer."""
    return (0, -int(path[2:])) if path.startswith("NV") else (1 + CLASSES.index(path), 0)


def _without_links(path: str) -> int:
    return _distance(path)[0]


judge_cpus = judge_of(
    "cpus",
    AFFINITIES,
    lambda text: [cpu for first, last in _parts(text) for cpu in range(first, last + 1)],
    (
        Mistake(
            "end_left_out",
            lambda text: [cpu for first, last in _parts(text) for cpu in range(first, last)],
            "the last CPU of a range belongs to it, and `range` stops before its end",
            throughout=True,
        ),
        Mistake(
            "ends_only",
            lambda text: [cpu for pair in _parts(text) for cpu in dict.fromkeys(pair)],
            "a range stands for all CPUs from its first to its last",
        ),
        Mistake(
            "first_part",
            lambda text: list(range(_parts(text)[0][0], _parts(text)[0][1] + 1)),
            "there may be several ranges, with commas between them",
        ),
        Mistake(
            "one_range",
            lambda text: list(range(_parts(text)[0][0], _parts(text)[-1][1] + 1)),
            "CPUs between two ranges do not belong to the GPU",
        ),
        Mistake(
            "text",
            lambda text: [str(cpu) for first, last in _parts(text) for cpu in range(first, last + 1)],
            "CPUs are numbers, and these are texts: use `int`",
        ),
    ),
    asked="a list of CPU numbers",
    rule="each part between commas is one CPU (5) or a range with both its ends (0-3), and N/A stands for no CPU",
    merit="ranges, single CPUs and N/A are all read",
)
judge_hop = judge_of(
    "slowest_hop",
    RINGS,
    lambda ring, matrix: max(_hops(matrix, ring), key=_distance),
    (
        Mistake(
            "open_ring",
            lambda ring, matrix: max(_hops(matrix, ring)[:-1], key=_distance),
            "the last GPU of a ring sends to the first one, so that is a hop, too",
        ),
        Mistake(
            "links_ignored",
            lambda ring, matrix: max(_hops(matrix, ring), key=_without_links),
            "the number after NV is the number of links, and fewer links are slower",
        ),
        Mistake(
            "fastest",
            lambda ring, matrix: min(_hops(matrix, ring), key=_distance),
            "that is the fastest hop, and the slowest one limits the ring",
            throughout=True,
        ),
        Mistake(
            "alphabet",
            lambda ring, matrix: max(_hops(matrix, ring)),
            f"that compares the names by the alphabet. The order is {_ORDER}",
            throughout=True,
        ),
        Mistake(
            "alphabet",
            lambda ring, matrix: min(_hops(matrix, ring)),
            f"that compares the names by the alphabet. The order is {_ORDER}",
            throughout=True,
        ),
        Mistake(
            "all_pairs",
            lambda ring, matrix: max((matrix[a][b] for a in ring for b in ring if a != b), key=_distance),
            "only neighbours in the ring send to each other",
        ),
    ),
    asked='the class of a path, such as "NV18" or "SYS"',
    rule=f"the order is {_ORDER}",
    merit="every neighbour counts, the last GPU and the first as well, and NVLinks are compared by their number",
)

check = Exercises(
    "topology",
    Exercise("cpus", AFFINITIES, judge_cpus, hints=HINTS["cpus"], grade=WARM_UP),
    Exercise("slowest_hop", RINGS, judge_hop, hints=HINTS["slowest_hop"], grade=CORE),
)
hint, solution, attempts = check.hint, check.solution, check.attempts
