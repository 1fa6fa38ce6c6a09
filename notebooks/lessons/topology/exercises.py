"""The exercises of lab 01: the slowest hop of a ring, and a ring with its buffers, placed and launched."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise, permutations
from random import Random
from typing import TYPE_CHECKING, Any

from IPython.display import HTML

from labkit.course.exercises import CORE, WARM_UP, Cases, Exercise, Exercises, Trial, compared
from labkit.course.judging import Mistake, not_the_form
from labkit.course.lineup import why
from labkit.course.verdict import Verdict
from labkit.node.topology import parse
from labkit.story import units
from labkit.tables.published import published_topology
from lessons.topology.plan import Rings
from lessons.topology.tables import ring_hops
from lessons.topology.theory import nominal_rates

if TYPE_CHECKING:
    from labkit.engine.run import Run

_CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS")  # after NVLink, from the shortest path to the longest
_ORDER = f"from fast to slow: NV with many links, NV with few, {', '.join(_CLASSES)}"


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
    long_ring, matrix = random.sample(range(8), 8), [["NV4"] * 8 for _ in range(8)]
    a, b = long_ring[5:7]
    matrix[a][b] = matrix[b][a] = "PHB"  # one slow hop, far from the ring's first one
    return [*drawn, (long_ring, matrix)]


def _hops(ring: list[int], matrix: list[list[str]]) -> list[str]:
    return [matrix[a][b] for a, b in zip(ring, ring[1:] + ring[:1], strict=True)]


def _distance(path: str) -> tuple[int, int]:
    """Return what orders paths from fast to slow: NVLink before PCIe, and more links before fewer."""
    return (0, -int(path[2:])) if path.startswith("NV") else (1 + _CLASSES.index(path), 0)


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
    grade=WARM_UP,
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

MACHINES = {  # NVLinks of each pair, and each GPU's NUMA node; GB/s of a link, and of the host's
    "DGX-1": (nominal_rates(parse(published_topology("dgx1-8xv100")), 25.781, 16.0), [0] * 4 + [1] * 4),
    "bridges": ([[0, 56, 20, 20], [56, 0, 20, 20], [20, 20, 0, 56], [20, 20, 56, 0]], [0, 0, 1, 1]),
}


def _placements(random: Random) -> list:
    """Return rates of all pairs, the GPUs' NUMA nodes, and how many GPUs are to form a ring."""
    drawn: list[tuple] = [(*MACHINES["DGX-1"], count) for count in (4, 2, 8, 3)]
    drawn += [(*MACHINES["bridges"], count) for count in (2, 4)]
    for gpus in (4, 5):
        rates = {pair: random.choice((8, 16, 25, 50, 75)) for pair in combinations(range(gpus), 2)}
        drawn.append((_rates(rates, gpus), [random.randrange(2) for _ in range(gpus)], random.randint(3, gpus)))
    without_first = {pair: 8 if 0 in pair else random.choice((25, 50, 75)) for pair in combinations(range(5), 2)}
    first, *rest = 0, *random.sample((2, 3), 2), *random.sample((1, 4), 2)
    one_ring = [(first, rest[0]), (rest[0], rest[2]), (rest[2], rest[3]), (rest[3], rest[1]), (rest[1], first)]
    path = random.sample(range(6), 6)  # four fast hops in turn, whose ends reach the last GPU slowly
    leading_astray = dict.fromkeys(pairwise(path[:5]), 75) | {(path[5], path[0]): 8, (path[5], path[4]): 8}
    one = random.randrange(2)
    alternating = [(gpu + one) % 2 for gpu in range(6)]
    drawn.append((_rates(without_first, 5), alternating[:5], 3))
    drawn.append((_rates(dict.fromkeys(one_ring, 50), 5, 16), alternating[:5], 5))
    drawn.append((_rates(leading_astray, 6, 25), alternating, 6))
    return drawn


def _rates(pairs: dict[tuple[int, int], int], gpus: int, others: int = 0) -> list[list[float]]:
    """Return GB/s from each GPU to each, the same both ways, where pairs that are not named have `others`."""
    rates = [[float(others) * (a != b) for b in range(gpus)] for a in range(gpus)]
    for (a, b), rate in pairs.items():
        rates[a][b] = rates[b][a] = float(rate)
    return rates


def slowest(order: Sequence[int], rates: Sequence[Sequence[float]]) -> tuple[float, int, int]:
    """Return the GB/s of a ring's slowest hop, and from which GPU to which it goes."""
    return min((rates[order[at - 1]][gpu], order[at - 1], gpu) for at, gpu in enumerate(order))


def fastest_ring(rates: Sequence[Sequence[float]], count: int) -> float:
    """Return what the slowest hop of the best ring of `count` GPUs carries, in GB/s."""
    return max(slowest(order, rates)[0] for order in permutations(range(len(rates)), count) if order[0] == min(order))


def judge_placements(given: Sequence, inputs: Sequence) -> Verdict:
    """Return the verdict on what `best_ring` gives for each node."""
    faults: dict[str, str] = {}
    for ring, (rates, numa, count) in zip(given, inputs, strict=True):
        if fault := _placement_fault(ring, rates, numa, count):
            faults.setdefault(fault[0], f"of {len(rates)} GPUs, a ring of {count}: {fault[1]}")
    merits = ["no ring has a faster slowest hop, its last one included, and each buffer is on its GPU's NUMA node"]
    rates, _ = MACHINES["DGX-1"]
    if not faults and (all_eight := [ring for ring, case in zip(given, inputs, strict=True) if case[2] == len(rates)]):
        order = [gpu for gpu, _ in all_eight[0]]
        by_number, yours = (units.rate(slowest(each, rates)[0]) for each in (range(len(rates)), order))
        ring = " → ".join(map(str, order))
        merits.append(
            f"the slowest hop of all eight GPUs of the DGX-1 carries {by_number} by number, {yours} as {ring}"
        )
    return Verdict.of_faults("best_ring", faults, *merits)


def _placement_fault(ring: Any, rates: list, numa: list, count: int) -> tuple[str, str] | None:
    """Return the first thing wrong with one ring: its kind and a sentence."""
    pairs = isinstance(ring, list | tuple) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in ring)
    if not pairs or any(type(part) is not int for pair in ring for part in pair):
        return "form", f"it gives {not_the_form(ring, 'a list of pairs (gpu, node)')}"
    order = [gpu for gpu, _ in ring]
    if len(order) != count:
        return "count", f"it has {len(order)} GPUs"
    if len({*order}) < count:
        return "twice", f"it is {order}, and a GPU has one place in a ring"
    if not all(0 <= gpu < len(rates) for gpu in order):
        return "unknown", f"it is {order}, and GPUs count from 0 to {len(rates) - 1}"
    rate, a, b = slowest(order, rates)
    if rate < (best := fastest_ring(rates, count)):
        back = " back to the first" if (a, b) == (order[-1], order[0]) else ""
        return "slow", f"the hop {a} → {b}{back} of {order} carries {rate:g} GB/s, and a ring with {best:g} exists"
    if wrong := [(gpu, node) for gpu, node in ring if node != numa[gpu]]:
        gpu, node = wrong[0]
        return "far", f"GPU{gpu}'s buffer is on NUMA node {node}, and the GPU on node {numa[gpu]}"
    return None


def _rings_here(file: str, *, size: str = "small", gpus: int = 0) -> list[Rings]:
    return [Rings.sized(size, gpus=gpus, seeds=1, yours=file)]


def judge_rings(run: Run) -> Verdict:
    """Return the verdict on a Rings run: the ring that the answer chose, beside the one by number."""
    rings = ring_hops(run)
    if (rings["status"] != "ok").any():
        return Verdict.of_faults("best_ring", {"bytes": "a GPU did not get the bytes of the one before it"})
    yours, by_number = (rings[rings["order"] == order] for order in ("yours", "by number"))
    order = " → ".join(yours["hop"].str.split().str[0])
    where = f"on {run.plan.workers_text}"
    if run.plan.gpus == 1:
        return Verdict.of_faults("best_ring", {}, f"{where} there is no other to send to: a ring of one was tried")
    if run.plan.device == "cpu":
        said = "brings everyone its neighbour's bytes; they have no wires, so any order would do"
        return Verdict.of_faults("best_ring", {}, f"{where} your ring ({order}) {said}")
    rates = [units.rate(rows["gb_per_s"].min()) for rows in (yours, by_number)]
    filled = units.rate(yours["host_gb_per_s"].min())
    return Verdict.of_faults(
        "best_ring",
        {},
        f"{where} the slowest hop of your ring ({order}) carries {rates[0]}, of the ring by number {rates[1]}",
        f"while all copy from where you put the host memory, each GPU gets {filled} or more",
    )


check = Exercises(
    "topology",
    _SLOWEST_HOP,
    Exercise(
        "best_ring",
        judge=judge_placements,
        trial=Trial(_rings_here, judge_rings),
        grade=CORE,
        cases=Cases(_placements),
        hints=(
            "Take four GPUs of the DGX-1. Which rings have no hop through the host? What is then their slowest hop?",
            "There are few GPUs, so try every order: `itertools.permutations(range(len(gb_per_s)), count)`. For each "
            "one, find its slowest hop, and keep the order for which that is the fastest.",
            "`best = max(permutations(...), key=lambda order: min(gb_per_s[order[i - 1]][order[i]] for i in "
            "range(count)))`: `order[-1]` is the last GPU, which sends to the first. Then `[(gpu, numa[gpu]) for gpu "
            "in best]`.",
        ),
    ),
)
hint, solution, attempts, yours = check.hint, check.solution, check.attempts, check.yours


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
