"""Reference solutions of the exercises of lab 12, as a student would write them."""


def devices_needed(total_gib, device_gb):
    from math import ceil

    return ceil(total_gib * 2**30 / (device_gb * 10**9))


def compute_bound_batch(d_ff, x, y, m_x, m_y, flop_per_s, bytes_per_s):
    computing = d_ff / (x * y * flop_per_s)  # each of these is per token and 4·D, weights are per 4·D alone
    activations = 1 / (x * bytes_per_s * m_y)
    weights = d_ff / (y * bytes_per_s * m_x)
    if computing <= activations:
        return None
    return weights / (computing - activations)
