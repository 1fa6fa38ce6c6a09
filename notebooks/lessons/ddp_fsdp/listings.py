"""The suspects of lab 04 as code, shortened: the right program, and what each bug changes in it."""

from labkit.course.lineup import edited

_RIGHT = """
model = Bert()
model = DistributedDataParallel(model)
model.register_comm_hook(group, combine)
sampler = DistributedSampler(
    samples, num_replicas=ranks, rank=rank)

def combine(group, bucket):
    gradients = bucket.buffer() / ranks
    work = all_reduce(gradients, async_op=True)
    return work.get_future()

for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch in loader(samples, sampler):
        model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
CODES = edited(
    _RIGHT,
    {
        "no_sampler": [("num_replicas=ranks, rank=rank", "num_replicas=1, rank=0")],
        "summed": [("bucket.buffer() / ranks", "bucket.buffer()")],
        "no_set_epoch": [("    sampler.set_epoch(epoch)\n", "")],
        "unused_parameter": [("model = Bert()\n", "model = Bert()\nmodel.spare = Linear(8, 8)\n")],
    },
)
