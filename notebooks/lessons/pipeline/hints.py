"""Hints for the exercises of lab 03: where to look, what the structure is, almost the code."""

HINTS = {
    "one_f_one_b": (
        "Look at the last rank first. It can go backward right after its first forward. How many forwards can the"
        " rank before it make until then?",
        "Rank r makes ranks − 1 − r forwards ahead, or fewer where there are not so many micro-batches. Then one "
        "forward and one backward in turn. Then the backwards that are left.",
        "`ahead = min(ranks - 1 - rank, micro_batches)`. First F0 to F(ahead − 1). Then, for each number from "
        '`ahead` on, `f"F{number}"` and `f"B{number - ahead}"`. The last `ahead` backwards end the list.',
    ),
    "balanced_split": (
        "An even number of layers per stage is not always best. Try layer times 1, 1, 1, 5 with two stages by hand.",
        "There are few ways to cut a short list. Try all of them, or build them up: the best split of the first k"
        " layers into s stages comes from a best split of fewer layers into s − 1 stages.",
        "`from itertools import combinations`. For each `cuts` in `combinations(range(1, len(times)), stages - "
        "1)`, the edges are `[0, *cuts, len(times)]`. Keep the edges whose largest `sum(times[a:b])` is smallest,"
        " and return their differences.",
    ),
}
