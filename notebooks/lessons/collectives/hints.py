"""Hints for the exercises of lab 09: where to look, what the structure is, almost the code."""

HINTS = {
    "bus_bandwidth": (
        "Bytes over time is the algorithm bandwidth. How many bytes cross one link of a ring, compared with the "
        "message?",
        "A factor for each collective: 2(N − 1)/N for an all-reduce, all of it for a broadcast and a send, (N − "
        "1)/N for the rest.",
        "`share = (ranks - 1) / ranks`. Look the factor up in a dict, with `.get(collective, share)`. Return "
        "`factor * message_bytes / seconds / 1e9`.",
    ),
    "ring_step": (
        "Follow one chunk around a ring of three ranks with pencil and paper. Which rank adds to it last?",
        "At each step a rank sends the chunk that came in the step before. What arrives is added during the first"
        " N − 1 steps, and replaces what is there after that. All numbers count modulo N.",
        "`send = (rank - step) % ranks`. The rank before sends `(rank - 1 - step) % ranks`, so that is the chunk "
        "to receive. `add` is true while `step < ranks - 1`.",
    ),
}
