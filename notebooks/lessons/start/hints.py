"""Hints for the exercises of lab 00: where to look, what the structure is, almost the code."""

HINTS = {
    "place": (
        "Write down the ranks of two nodes with 4 GPUs each. Which ranks share a node?",
        "The node is how many whole nodes are filled before this rank. The GPU is what is left.",
        "`rank // gpus_per_node` is the node. `%` gives what is left. Return both in a list.",
    ),
    "first_cause": (
        "Look at the messages first. Which of them say only that another rank is gone?",
        "Two cases: some reports are errors of their own, or none are. In the first case, compare times. In the "
        "second case, look for the rank that is missing.",
        '`own = [report for report in reports if "connection" not in report[2]]`. If `own` has items, return the '
        "rank of `min(own, key=lambda report: report[1])`. Otherwise return the rank in `range(ranks)` that is in no "
        "report.",
    ),
}
