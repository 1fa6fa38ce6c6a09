"""The suspects of lab 13 as code, shortened: the right program, and what each bug changes in it."""

from labkit.course.lineup import edited

_RIGHT = """
sampler = DistributedSampler(
    images, num_replicas=ranks, rank=rank)
rate = base_rate * batch / base_batch
for epoch in range(epochs):
    sampler.set_epoch(epoch)
    start = clock()
    train(model, sampler, peak_rate=rate)
    seconds.append(clock() - start)

mine = test_images[rank::ranks]
right, tested = evaluate(model, mine), len(mine)
right, tested = all_reduce([right, tested])
accuracy = right / tested
epoch_seconds = mean(seconds[1:])
"""
CODES = edited(
    _RIGHT,
    {
        "no_sampler": [("num_replicas=ranks, rank=rank", "num_replicas=1, rank=0")],
        "no_set_epoch": [("    sampler.set_epoch(epoch)\n", "")],
        "one_shard": [("right, tested = all_reduce([right, tested])\n", "")],
        "unscaled": [("base_rate * batch / base_batch", "base_rate")],
        "first_epoch": [("mean(seconds[1:])", "mean(seconds)")],
    },
)
