"""The exercises of lab 01: the CPUs close to a GPU, and the slowest hop of a ring."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from IPython.display import HTML

from labkit.course.exercises import CORE, WARM_UP, Cases, Exercises, compared
from labkit.course.judging import Mistake
from labkit.course.lineup import why

_CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS")  # after NVLink, from the shortest path to the longest
_ORDER = f"from fast to slow: NV with many links, NV with few, {', '.join(_CLASSES)}"


def _affinities(random: Random) -> list:
    """Return CPU affinities as the driver prints them."""
    drawn = ["0-3", "0-3,8-11", "5", "0-1,4,6-7", "10-12", "0-19,64-83", "N/A", str(random.randint(0, 127))]
    for count in (1, 1, 2, 3, 3):
        ends = sorted(random.sample(range(128), 2 * count))
        pairs = zip(ends[::2], ends[1::2], strict=True)
        drawn.append(",".join(f"{first}-{last}" if random.random() < 0.7 else str(first) for first, last in pairs))
    return [(text,) for text in drawn]


def _symmetric(*rows: str) -> list[list[str]]:
    """Return a matrix of paths from what stands right of its diagonal, a row a text."""
    matrix = [["X"] * (len(rows) + 1) for _ in range(len(rows) + 1)]
    for row, paths in enumerate(rows):
        for column, path in enumerate(paths.split(), row + 1):
            matrix[row][column] = matrix[column][row] = path
    return matrix


def _rings(random: Random) -> list:
    """Return GPUs in the order of a ring, and the matrix of `nvidia-smi topo -m`."""
    pairs = _symmetric("NV4 SYS SYS", "PIX SYS", "NV4")
    mixed = _symmetric("NV12 NV4 PHB", "NV12 NV4", "PXB")
    host = _symmetric("PIX PHB", "PXB")
    drawn = [(list(range(4)), _symmetric(*("NV18 " * links for links in (3, 2, 1)))), ([0, 1, 2, 3], pairs)]
    drawn += [([1, 2], pairs), *((ring, mixed) for ring in ([0, 1, 2], [0, 1, 3, 2], [1, 0, 2], [0, 1], [3, 0]))]
    drawn += [(ring, host) for ring in ([0, 2, 1], [1, 2], [0, 1])]
    order = ("NV12", "NV9", "NV1", *_CLASSES)
    drawn += [([1, 2, 0], _symmetric(f"{fast} {slow}", fast)) for fast, slow in pairwise(order)]
    for gpus in (3, 4, 4, 6, 8):
        links = [f"NV{count}" for count in random.sample(range(1, 19), 3)]
        classes = random.choice((links, (links[0], "PIX", "PHB", "SYS"), _CLASSES))
        rows = (" ".join(random.choices(classes, k=gpus - 1 - row)) for row in range(gpus - 1))
        drawn.append((random.sample(range(gpus), random.randint(2, gpus)), _symmetric(*rows)))
    return drawn


def _cpu_ranges(text: str) -> list[tuple[int, int]]:
    if text == "N/A":
        return []
    ends = [part.split("-") for part in text.split(",")]
    return [(int(pair[0]), int(pair[-1])) for pair in ends]


def _hops(ring: list[int], matrix: list[list[str]]) -> list[str]:
    return [matrix[a][b] for a, b in zip(ring, ring[1:] + ring[:1], strict=True)]


def _distance(path: str) -> tuple[int, int]:
    """Return what orders paths from fast to slow: NVLink before PCIe, and more links before fewer."""
    return (0, -int(path[2:])) if path.startswith("NV") else (1 + _CLASSES.index(path), 0)


_CPUS = compared(
    "cpus",
    lambda text: [cpu for first, last in _cpu_ranges(text) for cpu in range(first, last + 1)],
    (
        Mistake(
            "end_left_out",
            lambda text: [cpu for first, last in _cpu_ranges(text) for cpu in range(first, last)],
            "the last CPU of a range belongs to it, and `range` stops before its end",
            throughout=True,
        ),
        Mistake(
            "ends_only",
            lambda text: [cpu for pair in _cpu_ranges(text) for cpu in dict.fromkeys(pair)],
            "a range stands for all CPUs from its first to its last",
        ),
        Mistake(
            "first_part",
            lambda text: list(range(_cpu_ranges(text)[0][0], _cpu_ranges(text)[0][1] + 1)),
            "there may be several ranges, with commas between them",
        ),
        Mistake(
            "one_range",
            lambda text: list(range(_cpu_ranges(text)[0][0], _cpu_ranges(text)[-1][1] + 1)),
            "CPUs between two ranges do not belong to the GPU",
        ),
        Mistake(
            "text",
            lambda text: [str(cpu) for first, last in _cpu_ranges(text) for cpu in range(first, last + 1)],
            "CPUs are numbers, and these are texts: use `int`",
        ),
    ),
    result_form="a list of CPU numbers",
    rule="each part between commas is one CPU (5) or a range with both its ends (0-3), and N/A stands for no CPU",
    merit="ranges, single CPUs and N/A are all read",
    grade=WARM_UP,
    cases=Cases(_affinities),
    hints=(
        "Take one text, such as `0-1,4,6-7`, and write its CPUs down by hand.",
        "Split at the commas. Each part is one number, or a first and a last number with `-` between them. Handle "
        "N/A before that.",
        'For each part: `ends = part.split("-")`, then `range(int(ends[0]), int(ends[-1]) + 1)`. `ends[-1]` is '
        "also right for a single number.",
    ),
)
_BY_ALPHABET = f"that compares the names by the alphabet. The order is {_ORDER}"
_SLOWEST_HOP = compared(
    "slowest_hop",
    lambda ring, matrix: max(_hops(ring, matrix), key=_distance),
    (
        Mistake(
            "open_ring",
            lambda ring, matrix: max(_hops(ring, matrix)[:-1], key=_distance),
            "the last GPU of a ring sends to the first one, so that is a hop, too",
        ),
        Mistake(
            "links_ignored",
            lambda ring, matrix: max(_hops(ring, matrix), key=lambda path: _distance(path)[0]),
            "the number after NV is the number of links, and fewer links are slower",
        ),
        Mistake(
            "fastest",
            lambda ring, matrix: min(_hops(ring, matrix), key=_distance),
            "that is the fastest hop, and the slowest one limits the ring",
            throughout=True,
        ),
        Mistake("alphabet", lambda ring, matrix: max(_hops(ring, matrix)), _BY_ALPHABET, throughout=True),
        Mistake("alphabet", lambda ring, matrix: min(_hops(ring, matrix)), _BY_ALPHABET, throughout=True),
        Mistake(
            "all_pairs",
            lambda ring, matrix: max((matrix[a][b] for a in ring for b in ring if a != b), key=_distance),
            "only neighbours in the ring send to each other",
        ),
    ),
    result_form='the class of a path, such as "NV18" or "SYS"',
    rule=f"the order is {_ORDER}",
    merit="every neighbour counts, the last GPU and the first as well, and NVLinks are compared by their number",
    grade=CORE,
    cases=Cases(_rings),
    hints=(
        "Which pairs of GPUs send to each other in a ring of three? There are as many pairs as GPUs.",
        "List the classes of all neighbours. Then take the slowest one: you need an order of the classes, and for "
        "NVLink the number of links.",
        "`hops = [matrix[ring[i - 1]][ring[i]] for i in range(len(ring))]`, because `ring[-1]` is the last GPU. "
        "Return `max(hops, key=slowness)`, where `slowness` gives `(0, -links)` for NVLink and `(1, place)` for "
        "the others.",
    ),
)

check = Exercises("topology", _CPUS, _SLOWEST_HOP)
hint, solution, attempts = check.hint, check.solution, check.attempts


def why_below() -> HTML:
    """Ask why a copy between two GPUs stays below its links' rate."""
    return why(
        "No pair of GPUs reaches its links' rate. What takes the rest, for a copy of 1 GiB?",
        (
            "Every packet carries more than data",
            "Headers and checks, say: the likely reason. The driver's rate counts them: the datasheet's is less.",
        ),
        ("The copy has to start", "That takes microseconds, and 1 GiB milliseconds: it matters for small copies only."),
        ("The GPUs' memory is too slow", "By the datasheet it is about ten times as fast as the links."),
    )
