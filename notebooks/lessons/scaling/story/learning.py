"""What whole trainings say about batch, learning rate and order."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import about_tables, listed, say
from labkit.theory.images import CIFAR
from lessons.scaling.theory import GUESSING

_NAMES = {
    "reference": "the reference on one GPU",
    "one_gpu": "the same large batch on one GPU",
    "large": "the large batch on all GPUs",
    "unscaled": "an unscaled learning rate",
    "no_warm_up": "no warm-up",
    "same_order": "no `set_epoch`",
    "sync_bn": "SyncBatchNorm",
}


@about_tables
def explain_accuracy(table: pd.DataFrame, apart: pd.DataFrame) -> Markdown:
    """Say which trainings differ in test accuracy beyond twice the standard error, and which do not."""
    small = fact(table, "small")
    sentences = []
    known = table.set_index("variant")
    for variant in ("reference", "large"):
        if variant in known.index:
            row = known.loc[variant].to_dict()
            spread = "" if pd.isna(row["std_test_percent"]) else f" ± {row['std_test_percent']:.1f}"
            sentences.append(
                f"{_begun(_NAMES[variant])} ({row['ranks']:.0f} × {row['gpu_batch']:.0f}, {row['steps']:.0f} steps) "
                f"gets {row['test_percent']:.1f}{spread} % of the test images right."
            )
    sentences.append(_speed(known))
    if (table["test_percent"] < GUESSING + 5).all():
        sentences.append("**No training learnt more than guessing**: so few steps show the code, not the accuracy.")
    else:
        sentences += [_at_chance(row) for row in table[table["at_chance"] > 0].to_dict("records")]
    sentences += [_pair(row) for row in apart[apart["resolved"]].to_dict("records")]
    vague = [_pair_name(row) for row in apart[~apart["resolved"].astype(bool)].to_dict("records")]
    if vague:
        sentences.append(f"**Not resolved by these data**: {listed(vague)}.")
    if fact(table, "images") != CIFAR:
        sentences.append("These are made images: nothing here is a claim about CIFAR-10.")
    return say(*sentences, small=small)


def _begun(text: str) -> str:
    return text[0].upper() + text[1:]


def _at_chance(row: dict) -> str:
    """Say in how many seeds a training learnt nothing: there a mean over seeds describes no training that happened."""
    return f"{_begun(_NAMES[row['variant']])} stays at chance in {row['at_chance']} of {row['seeds']} seeds."


def _pair(row: dict) -> str:
    direction = "more" if row["points"] > 0 else "fewer"
    than = f"{abs(row['points']):.1f} ± {row['interval']:.1f} points {direction}"
    return f"{_begun(_NAMES[row['variant']])} gets **{than}** than {_NAMES[row['other']]}."


def _pair_name(row: dict) -> str:
    interval = "one seed" if pd.isna(row["interval"]) else f"± {row['interval']:.1f}"
    return f"{_NAMES[row['variant']]} against {_NAMES[row['other']]} ({row['points']:+.1f} points, {interval})"


def _speed(known: pd.DataFrame) -> str | None:
    """Say what the large batch on all GPUs saves in time."""
    if not {"reference", "large"} <= {*known.index}:
        return None
    seconds = known["seconds"]
    times = units.times(seconds["reference"] / seconds["large"])
    return f"The large batch on all GPUs trains {times} as fast as the reference."
