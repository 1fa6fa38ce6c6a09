"""What is wrong with layers that somebody sharded, by what was noted of them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

_CLOSE = 1e-3  # relative, of float32 values that differ by rounding alone


def layer_faults(row: dict[str, Any]) -> dict[str, str]:
    """Return what is wrong with layers that somebody sharded, by kind; a fault that follows from another is left out.

    `row` has `ranks` and what was noted (worker/watched_layer.py). A note that is absent is zero.
    """
    notes, ranks = defaultdict(float, row), row["ranks"]
    if notes["no_room"]:
        return {
            "no_room": "after `gather`, `whole` has no memory: `gather` runs in forward and again in backward, and "
            "has to resize the storage and collect the shards each time"
        }
    waits = [name for name in ("gather", "scatter") if notes[f"{name}_not_waited"]]
    if waits:
        return {
            "not_waited": f"`{waits[0]}` starts a collective with `async_op=True` and ends before it is done: "
            "call `wait()` on what the collective returns"
        }
    faults = {}
    if not notes["weights_error"] < _CLOSE:
        faults["wrong_weights"] = (
            "after `gather`, `whole` does not hold the shards of all ranks, one after another in the order of the ranks"
        )
    elif fault := _gradient_fault(notes, ranks):
        faults |= fault
    for when, function in (("forward", "free"), ("backward", "scatter")):
        if notes[f"kept_after_{when}"]:
            faults["kept"] = (
                f"after {when}, the memory of the whole weights is still there: `{function}` has to take it away"
            )
            break
    if notes["gradient_left"]:
        faults["gradient_left"] = (
            "`scatter` leaves `whole.grad`: it keeps the memory of a whole gradient, and the next step's gradient is "
            "added to it"
        )
    if notes["gradient_memory"] > 1.5:
        faults["gradient_memory"] = (
            f"`shard.grad` keeps {notes['gradient_memory']:.0f}× the memory of a shard: it is a view of a longer tensor"
        )
    for function, what in (("gather", "an all-gather"), ("scatter", "a reduce-scatter")):
        if notes[f"{function}_sent"] > 1.01:
            faults.setdefault(
                "bytes",
                f"`{function}` sends {notes[f'{function}_sent']:.3g}× the bytes that {what} of the layer sends"
                + (
                    ": an all-reduce gives every rank the whole sum, but a rank needs its part alone" * (what[2] == "r")
                ),
            )
    if not faults and not max(notes["update_error"], notes["loss_error"]) < _CLOSE:
        faults["wrong"] = "the first step is right, but losses or weights after it are not those of one process"
    return faults


def _gradient_fault(notes: dict[str, float], ranks: int) -> dict[str, str]:
    ratio, error = notes["gradient_ratio"], notes["gradient_error"]
    if notes["gradient_missing"]:
        return {
            "no_gradient": "after backward, `shard.grad` is None: the optimizer has nothing to update the shard with"
        }
    if error < _CLOSE:
        return {}
    along = error - abs(ratio - 1) < _CLOSE  # only its length is wrong
    if along and abs(ratio / ranks - 1) < _CLOSE:
        return {
            "summed": f"`shard.grad` is {ranks}× the right one, as many as ranks: the sum of the ranks' gradients, "
            "not their mean"
        }
    if along and abs(ratio * ranks - 1) < _CLOSE:
        return {"averaged_twice": f"`shard.grad` is 1/{ranks} of the right one: the mean is divided by the ranks again"}
    if notes["own_error"] < _CLOSE:
        return {
            "not_reduced": "`shard.grad` comes from this rank's samples alone: the ranks' gradients are not added up"
        }
    if notes["other_error"] < _CLOSE:
        return {"wrong_shard": "`shard.grad` is the part of another rank: rank r keeps part r of the mean gradient"}
    return {
        "wrong_gradient": f"`shard.grad` differs from this rank's part of the mean gradient ({ratio:.3g}× along it)"
    }
