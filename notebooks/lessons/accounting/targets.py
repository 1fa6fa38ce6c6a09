"""What the accounting reaches of the lab's targets: worked examples met exactly, published doubts explained."""

from __future__ import annotations

import pandas as pd

from labkit.tables.published import published as published_table
from labkit.tables.targets import CODE, Target, card
from lessons.accounting.tables.answers import answers
from lessons.accounting.tables.memory import TPU_GB, states_bytes
from lessons.accounting.theory import COURSE_MESH, MODELS, XXL, devices, least_tokens, number_in, of, smallest_fsdp

_WEIGHTS_OF_LLAMA = {"Llama 2 7 B": ("7 B", 6_738_415_616), "Llama 3.1 405 B": ("405 B", 405_853_388_800)}  # published


def scorecard(published: pd.DataFrame) -> pd.DataFrame:
    """Return the lab's targets: lab, target, measured, goal, unit, met. The goals are worked by hand."""
    states = states_bytes()
    by_way = {name: least_tokens(COURSE_MESH, XXL, name == "at once") for name in ("at once", "in turn")}
    table = answers(published)
    differ = table[~table["agrees"]]
    exact = [
        ("XXL's float32 states", number_in("GiB", states), 3276, "GiB"),
        ("XXL's states on 80 GB devices", devices(states, 80), 44, "devices"),
        ("XXL's smallest N_FSDP under 95 GB", smallest_fsdp(XXL, 0, of(TPU_GB, "GB")) or 0, 38, "devices"),
        ("compute-bound batch, at once", round(by_way["at once"]), 20444, "tokens"),
        ("compute-bound batch, in turn", round(by_way["in turn"]), 25302, "tokens"),
        ("the same per device, at once", round(by_way["at once"] / COURSE_MESH.devices), 319, "tokens"),
        ("the same per device, in turn", round(by_way["in turn"] / COURSE_MESH.devices), 395, "tokens"),
    ]
    for name, (model, weights) in _WEIGHTS_OF_LLAMA.items():
        exact.append(
            (f"off the published parameters of {name} by", MODELS[model].parameters - weights, 0, "parameters")
        )
    explained = int((differ["mistake"] != "").sum())
    exact.append(("published answers that differ, explained", explained, len(differ), "answers"))
    return card(
        "accounting",
        [Target(what, float(value), "=", goal, unit, depends_on=CODE) for what, value, goal, unit in exact],
    )


def computed_scorecard() -> pd.DataFrame:
    """Return the lab's targets without a run, for this lab launches none."""
    return scorecard(published_table("communication_accounting"))
