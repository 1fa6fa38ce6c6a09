"""Hints for the exercises of lab 01: where to look, what the structure is, almost the code."""

HINTS = {
    "cpus": (
        "Take one text, such as `0-1,4,6-7`, and write its CPUs down by hand.",
        "Split at the commas. Each part is one number, or a first and a last number with `-` between them. Handle N/A "
        "before that.",
        'For each part: `ends = part.split("-")`, then `range(int(ends[0]), int(ends[-1]) + 1)`. `ends[-1]` is also '
        "right for a single number.",
    ),
    "slowest_hop": (
        "Which pairs of GPUs send to each other in a ring of three? There are as many pairs as GPUs.",
        "List the classes of all neighbours. Then take the slowest one: you need an order of the classes, and for "
        "NVLink the number of links.",
        "`hops = [matrix[ring[i - 1]][ring[i]] for i in range(len(ring))]`, because `ring[-1]` is the last GPU. Return "
        "`max(hops, key=slowness)`, where `slowness` gives `(0, -links)` for NVLink and `(1, place)` for the others.",
    ),
}
