"""The suspects of lab 05 as code, shortened: the right program, and what each bug changes in it."""

from labkit.course.lineup import edited

_RIGHT = """
for block in model.blocks:
    fully_shard(block, mesh)
fully_shard(model, mesh)

def step(micro_batches):
    count = len(micro_batches)
    for number, batch in enumerate(micro_batches):
        last = number == count - 1
        model.set_requires_gradient_sync(last)
        loss = model(*batch) / count
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
CODES = edited(
    _RIGHT,
    {
        "root_only": [("for block in model.blocks:\n    fully_shard(block, mesh)\n", "")],
        "synced_every_time": [("set_requires_gradient_sync(last)", "set_requires_gradient_sync(True)")],
        "undivided": [("model(*batch) / count", "model(*batch)")],
    },
)
