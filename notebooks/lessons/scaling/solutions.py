"""Reference solutions of the exercises of lab 13, as a student would write them."""


def shard(images, ranks, rank, epoch, drop_last):
    import random

    order = list(range(images))
    random.Random(epoch).shuffle(order)
    if drop_last:
        order = order[: images - images % ranks]
    else:
        filled = -(-images // ranks) * ranks
        order = (order * ranks)[:filled]
    return order[rank::ranks]


def rates(steps, warm_up_steps, batch, base_batch, base_rate):
    peak = base_rate * batch / base_batch
    climbing = [peak * (step + 1) / warm_up_steps for step in range(warm_up_steps)]
    falling = [peak * (steps - step) / (steps - warm_up_steps) for step in range(warm_up_steps, steps)]
    return climbing + falling
