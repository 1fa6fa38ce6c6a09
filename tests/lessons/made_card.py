"""Readings and cards made by hand: what one figure showed on some node, and its reference."""

import math
from itertools import count

from made import gpu_node

from labkit.card.cards import make_card, node_facts
from labkit.card.readings import Reading

PAIR = ("topology", "GPU → GPU, slowest pair")  # higher is better, with a limit
CALL = ("collectives", "all-reduce, one small call")  # lower is better, by the host
_RUNS = count(1)


def reading(
    key=PAIR, value=390.0, spread=1.0, *, setting="1024 MiB", limit: float | None = 478.1, conditions=None, **more
):
    """Return a reading, of a run of its own, whose quartiles lie `spread` beside its median."""
    lab, figure = key
    unit = "GB/s" if key == PAIR else "µs"
    about = {"run": f"run {next(_RUNS)}", "date": "2026-11-22T10:00:00", "small": False, "model": "NVIDIA H200"} | more
    told = {"lab": lab, "figure": figure, "unit": unit, "value": value, "low": value - spread, "high": value + spread}
    return Reading(
        **told,
        repeats=9,
        setting=setting,
        limit=math.nan if limit is None else limit,
        conditions=conditions or {},
        **about,
    )


RECORDED = (reading(run="h200x4/topology/copies", date="2026-11-22"),)


def card(*readings, recorded=RECORDED, date="2026-11-22T10:00:00", gpus=2, **more):
    """Return the card of a node with H200s."""
    return make_card(readings, node_facts(gpu_node(gpus)), date, recorded=lambda model: (list(recorded), []), **more)


def row(made, key=PAIR):
    """Return a figure's row of a card."""
    return next(one for one in made.rows if one.key == key)
