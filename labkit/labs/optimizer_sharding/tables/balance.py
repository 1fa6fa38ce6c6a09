"""Who owns how much: by rule and model, and as the ranks of a run counted it."""

from __future__ import annotations

import math

import pandas as pd

from labkit.labs.optimizer_sharding.tables.memory import sizes, sourced
from labkit.labs.optimizer_sharding.theory.balance import RULES, excess, least_excess, loads
from labkit.labs.optimizer_sharding.theory.updates import STATE_BYTES
from labkit.tables.rows import entries
from labkit.theory.transformer import SIZES, transformer

WIDE = 128_256  # words of Llama 3's vocabulary, under the smallest model


def balance(ranks: tuple[int, ...] = (2, 3, 4, 8)) -> pd.DataFrame:
    """Give, a model, number of ranks and rule: `excess`, the fullest rank's elements over an equal part, less one.

    Models: the course's five, and its smallest with a vocabulary of 128 256 words. `least_excess`: what no assignment
    of whole parameters goes below.
    """
    models = {name: transformer(*size[:3]) for name, size in SIZES.items()}
    models["small, 128 k words"] = transformer(*SIZES["small"][:3], vocabulary=WIDE)
    rows = []
    for name, model in models.items():
        elements = [math.prod(shape) for shape in model.shapes]
        for count in ranks:
            rows += [
                {
                    "model": name,
                    "ranks": count,
                    "rule": rule,
                    "excess": excess(loads(elements, count, rule)),
                    "least_excess": least_excess(elements, count),
                }
                for rule in RULES
            ]
    table = pd.DataFrame(rows)
    table.attrs.update(source="theory: the course's transformers, vocabulary 10 000 unless told", small=False)
    return table


def owned(run) -> pd.DataFrame:
    """Give, a way: the fullest and the emptiest rank's states as shares of the whole, and the fullest's excess.

    Shares are of bytes that the ranks' tensors hold after the last update, over all states of the model.
    """
    rows = entries(run, "memory")
    last = rows[(rows["moment"] == "after update") & (rows["step"] == rows["step"].max())]
    last = last[last["kernel"] == last["kernel"].iloc[0]]
    whole = STATE_BYTES["adamw"] * sum(sizes(run.plan)) / 2**20
    shares = (last["states_mib"] / whole).groupby(last["way"], sort=False).agg(["max", "min"])
    table = shares.rename(columns={"max": "fullest", "min": "emptiest"}).reset_index()
    table["excess"] = table["fullest"] * run.plan.gpus - 1
    return sourced(table, run)
