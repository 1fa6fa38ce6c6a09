"""Hints for the exercises of lab 07: where to look, what the structure is, almost the code."""

HINTS = {
    "peak_bytes": (
        "There are two moments that can be the fullest: the loss, at the end of forward, and the optimizer's "
        "update. What is in memory at each of them?",
        "At the loss: weights, moments if there was a step before, all activations, copies of the weights under "
        "autocast, and what the loss needs beside its logits. At the update: weights, gradients and both moments."
        " Return the larger one.",
        "`matrices = layers * (4 * hidden**2 + 3 * hidden * inner) + hidden * vocabulary`, and the embedding "
        "comes on top. At the update there are 16 bytes per parameter. At the loss: 4 per parameter, 8 more in a "
        "steady step, 2 per element of the matrices for bfloat16 copies, the activations, and `8 * tokens * "
        "vocabulary`.",
    ),
    "placement": (
        "Compute the peak of one placement by hand. In backward, the last block comes first; a checkpointed block"
        " is computed again and then holds everything.",
        "Write a function for the peak of a set of blocks. Then try all sets: there are 2 to the number of "
        "blocks. Of those within the budget, take the one with least time.",
        "`held` starts as the sum of inputs (checkpointed) and kept MiB (others); this is the first peak. For each "
        "block from the last: if it is checkpointed, `held + kept` is a possible peak, and then `held -= input`; "
        "otherwise `held -= kept`. `itertools.combinations` gives the sets.",
    ),
}
