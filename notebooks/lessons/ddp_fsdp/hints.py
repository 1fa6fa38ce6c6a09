"""Hints for the exercises of lab 04: where to look, what the structure is, almost the code."""

HINTS = {
    "sent_bytes": (
        "List the collectives of a step for each strategy. The ledger of this lesson has them.",
        "An all-reduce is a reduce-scatter and an all-gather. Each of these two sends (N − 1)/N of all bytes. "
        "Count how many of them each strategy makes: for the gradients, and for the parameters in forward and "
        "backward.",
        "Count 2 for `ddp` and `fsdp_grad`, 3 for `fsdp_full`. Multiply by `(ranks - 1) / ranks * 4 * parameters`.",
    ),
    "buckets": (
        "Go through the example by hand: sizes 4, 2, 3, 1, first cap 1, cap 4. When is the first bucket closed?",
        "Take the parameters from the last to the first. Before you add one, look whether the open bucket already"
        " holds its cap. The first bucket has a cap of its own.",
        "Keep `held` and `room`. For each number from the last: if `held >= room`, append a new list and set "
        "`held, room = 0, cap_bytes`. Then append the number to `filled[-1]` and add its size to `held`.",
    ),
}
