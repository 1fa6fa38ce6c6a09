"""Reference solutions of the exercises of lab 05, as a student would write them."""


def held_bytes(parameters, ranks, stage):
    weights, gradients, states = 4 * parameters, 4 * parameters, 8 * parameters
    if stage >= 1:
        states /= ranks
    if stage >= 2:
        gradients /= ranks
    if stage >= 3:
        weights /= ranks
    return weights + gradients + states


def smallest_stage(parameters, ranks, gpu_bytes, activation_bytes):
    sharded = [0, 8, 12, 16]  # of 16 bytes per parameter, by stage
    for stage in range(4):
        per_parameter = 16 - sharded[stage] + sharded[stage] / ranks
        if per_parameter * parameters + activation_bytes <= gpu_bytes:
            return stage
    return None
