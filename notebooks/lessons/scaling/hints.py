"""Hints for the exercises of lab 13: where to look, what the structure is, almost the code."""

HINTS = {
    "shard": (
        "Which part must be the same on all ranks, and which differs? Try 10 images on 4 ranks by hand.",
        "Shuffle with a generator that only the epoch seeds. Make the length divisible by the ranks: cut, or "
        "repeat from the start (more than once, if there are fewer images than ranks). Then take every `ranks`-th"
        " number.",
        "`random.Random(epoch).shuffle(order)`. With `drop_last`: `order[: images - images % ranks]`. Without: "
        "`filled = -(-images // ranks) * ranks`, then `(order * filled)[:filled]`. Return `order[rank::ranks]`.",
    ),
    "rates": (
        "What is the highest rate? The base rate belongs to the base batch.",
        "The peak is the base rate times batch over base batch. Step k of the warm-up has (k + 1) parts of it. "
        "After that, step k has (steps − k) of (steps − warm_up_steps) parts.",
        "`peak = base_rate * batch / base_batch`. Two lists: `peak * (k + 1) / warm_up_steps` for the first "
        "`warm_up_steps`, and `peak * (steps - k) / (steps - warm_up_steps)` for the rest.",
    ),
}
