"""Hints for the exercises of lab 14: where to look, what the structure is, almost the code."""

HINTS = {
    "accumulation_for": (
        "Which part of the step grows with the number of micro-batches, and which part stays as it is?",
        "With k micro-batches the step computes k times and communicates once. Efficiency is computing over the whole "
        "step. It grows with k, so look for the first k that is enough.",
        "`k = 1`, and while `k * compute_s / (k * compute_s + communication_s) < efficiency`, add 1. The closed form "
        "is `ceil(efficiency * communication_s / ((1 - efficiency) * compute_s))`, at least 1.",
    ),
    "mesh_groups": (
        "Write the ranks of 2 nodes with 4 GPUs each as a table, one row per node. Which ranks share a row?",
        "The groups inside nodes are the rows of that table. The groups between nodes are its columns: the ranks that "
        "have the same place in their nodes. Return a list of both lists of groups.",
        "Rank = `node * per_node + place`. Rows: for each node, all places. Columns: for each place, all nodes. "
        "`return [inside, between]`.",
    ),
    "hierarchical_seconds": (
        "There are three phases. In which of them does a byte leave the node, and who shares the link then?",
        "A reduce-scatter inside has g − 1 steps of S/g. The all-reduces between nodes have 2(n − 1) steps. In each "
        "step g rings send S/g/n through one link, together S/n. An all-gather inside takes as long as the "
        "reduce-scatter.",
        "`inside = (per_node - 1) * (inside_alpha_s + whole_bytes / per_node / (inside_gb_per_s * 1e9))` and `between "
        "= 2 * (nodes - 1) * (link_alpha_s + whole_bytes / nodes / (link_gb_per_s * 1e9))`. Add `inside` twice.",
    ),
}
