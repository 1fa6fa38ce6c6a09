"""Reference solutions of the exercises of lab 14, as a student would write them."""


def accumulation_for(efficiency, compute_s, communication_s):
    micro_batches = 1
    while micro_batches * compute_s / (micro_batches * compute_s + communication_s) < efficiency:
        micro_batches += 1
    return micro_batches


def hierarchical_seconds(whole_bytes, nodes, per_node, inside_alpha_s, inside_gb_per_s, link_alpha_s, link_gb_per_s):
    inside = (per_node - 1) * (inside_alpha_s + whole_bytes / per_node / (inside_gb_per_s * 1e9))
    between = 2 * (nodes - 1) * (link_alpha_s + whole_bytes / nodes / (link_gb_per_s * 1e9))
    return inside + between + inside
