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
