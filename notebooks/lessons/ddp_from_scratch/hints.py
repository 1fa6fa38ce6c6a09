"""Hints for the exercises of lab 10: where to look, what the structure is, almost the code."""

HINTS = {
    "best_count": (
        "Two costs: every call costs o, and the last bucket cannot be hidden. Which of them falls with more buckets?",
        "The cost is n·o + s/(n·w). As a function of any n it is least at √(s/(w·o)). Buckets come whole, and "
        "there is at least one.",
        "`below = max(1, int((total_bytes / bytes_per_s / call_s) ** 0.5))`. Compute the cost for `below` and "
        "`below + 1`, and return the one that costs less.",
    ),
    "started": (
        "When may bucket 1 be sent if it is full before bucket 0? Look at the example in the text.",
        "Keep the set of gradients that have arrived, and the number of the next bucket to send. After each "
        "arrival, send as many buckets as possible, in order.",
        "After `arrived.add(weight)`: `while sent < len(buckets) and set(buckets[sent]) <= arrived:` append "
        "`sent` to this arrival's list, and add 1 to `sent`.",
    ),
}
