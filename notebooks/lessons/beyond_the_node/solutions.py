"""Reference solutions of the exercises of lab 14, as a student would write them."""


def accumulation_for(efficiency, compute_s, communication_s):
    micro_batches = 1
    while micro_batches * compute_s / (micro_batches * compute_s + communication_s) < efficiency:
        micro_batches += 1
    return micro_batches
