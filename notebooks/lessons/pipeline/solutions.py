"""Reference solutions of the exercises of lab 03, as a student would write them."""


def one_f_one_b(rank, ranks, micro_batches):
    ahead = min(ranks - 1 - rank, micro_batches)
    steps = [f"F{number}" for number in range(ahead)]
    for number in range(ahead, micro_batches):
        steps += [f"F{number}", f"B{number - ahead}"]
    return steps + [f"B{number}" for number in range(micro_batches - ahead, micro_batches)]


def balanced_split(times, stages):
    best = {0: (0.0, [])}  # layers that are placed: the slowest stage's time, and the layers of each stage
    for _ in range(stages):
        longer = {}
        for placed, (slowest, sizes) in best.items():
            for end in range(placed + 1, len(times) + 1):
                option = max(slowest, sum(times[placed:end])), [*sizes, end - placed]
                longer[end] = min(longer.get(end, option), option)
        best = longer
    return best[len(times)][1]
