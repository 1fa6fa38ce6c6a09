"""What the accounting reaches of the lab's targets: worked examples met exactly, published doubts explained."""

from __future__ import annotations

import pandas as pd

from labkit.labs.accounting.tables.account import TPU_GB, states_bytes
from labkit.labs.accounting.tables.reading import answers
from labkit.labs.accounting.theory import COURSE_MESH, MODELS, XXL, devices, least_tokens, number_in, of, smallest_fsdp
from labkit.tables.targets import COLUMNS

LLAMA_7B, LLAMA_405B = 6_738_415_616, 405_853_388_800  # of the published weights


def scorecard(published: pd.DataFrame) -> pd.DataFrame:
    """Give the lab's targets: lab, target, measured, goal, unit, met. No run is needed: worked by hand is the goal."""
    states = states_bytes()
    at_once, in_turn = (least_tokens(COURSE_MESH, XXL, way) for way in (True, False))
    table = answers(published)
    differ = table[~table["agrees"]]
    exact = [
        ("XXL's float32 states", number_in("GiB", states), 3276, "GiB"),
        ("XXL's states on 80 GB devices", devices(states, 80), 44, "devices"),
        ("XXL's smallest N_FSDP under 95 GB", smallest_fsdp(XXL, 0, of(TPU_GB, "GB")), 38, "devices"),
        ("compute-bound batch, at once", round(at_once), 20444, "tokens"),
        ("compute-bound batch, in turn", round(in_turn), 25302, "tokens"),
        ("the same a device, at once", round(at_once / COURSE_MESH.devices), 319, "tokens"),
        ("the same a device, in turn", round(in_turn / COURSE_MESH.devices), 395, "tokens"),
        ("off the published parameters of Llama 2 7 B by", MODELS["7 B"].parameters - LLAMA_7B, 0, "parameters"),
        (
            "off the published parameters of Llama 3.1 405 B by",
            MODELS["405 B"].parameters - LLAMA_405B,
            0,
            "parameters",
        ),
        ("published answers that differ, explained", (differ["mistake"] != "").sum(), len(differ), "answers"),
    ]
    rows = [
        ("accounting", target, float(value), f"{goal}", unit, bool(value == goal))
        for target, value, goal, unit in exact
    ]
    return pd.DataFrame(rows, columns=COLUMNS)
