"""Reference solutions of the exercises of lab 07, as a student would write them."""


def peak_bytes(vocabulary, hidden, inner, layers, heads, samples, sequence, precision, phase):
    from labkit.theory.transformer import activations as kept

    tokens = samples * sequence
    activations = kept(tokens, hidden, inner, layers, heads, vocabulary, precision)
    matrices = layers * (4 * hidden**2 + 3 * hidden * inner) + hidden * vocabulary
    parameters = matrices + hidden * vocabulary + (2 * layers + 1) * hidden
    copies = 0 if precision == "float32" else 2 * matrices
    states = 8 * parameters if phase == "steady" else 0
    at_the_loss = 4 * parameters + copies + states + activations + 8 * tokens * vocabulary
    at_the_update = 16 * parameters
    return max(at_the_loss, at_the_update)


def placement(blocks, budget_mib):
    from itertools import combinations

    def peak(chosen):
        fullest = held = sum(block[1] if at in chosen else block[0] for at, block in enumerate(blocks))
        for at in reversed(range(len(blocks))):
            kept, entry, _ = blocks[at]
            if at in chosen:  # it is computed again: all that it keeps comes on top of its input
                fullest = max(fullest, held + kept)
            held -= entry if at in chosen else kept
        return fullest

    numbers = range(len(blocks))
    options = [chosen for count in range(len(blocks) + 1) for chosen in combinations(numbers, count)]
    fitting = [chosen for chosen in options if peak(chosen) <= budget_mib]
    return list(min(fitting, key=lambda chosen: sum(blocks[at][2] for at in chosen)))
