"""Hints for the exercises of lab 12: where to look, what the structure is, almost the code."""

HINTS = {
    "devices_needed": (
        "A GiB is 2³⁰ bytes, a GB is 10⁹ bytes. How many GB are 3 276 GiB?",
        "Convert both sizes to bytes. Divide, and round up: the last device counts even if little is on it.",
        "`math.ceil(total_gib * 2**30 / (device_gb * 10**9))`.",
    ),
    "compute_bound_batch": (
        "Write the three times down as this lesson does. Which of them grow with the batch B, and which do not?",
        "Computing and activations grow with B, weights do not. Set computing equal to activations plus weights, "
        "and solve for B. If activations grow as fast as computing, or faster, no batch is enough.",
        "Divide all terms by 4·D: `computing = d_ff / (x * y * flop_per_s)` and `activations = 1 / (x * "
        "bytes_per_s * m_y)`, both per token, and `weights = d_ff / (y * bytes_per_s * m_x)`. The batch is "
        "`weights / (computing - activations)`.",
    ),
}
