"""The suspects of lab 03 as code, shortened: the right program, and what each bug changes in it."""

from labkit.course.lineup import edited

_RIGHT = """
def cut(sizes):
    parts, first = [], 0
    for size in sizes:
        parts.append(range(first, first + size))
        first += size
    return parts

stage = Stage(layers=cut(sizes)[rank])
schedule = ScheduleGPipe(
    stage, micro_batches, loss, scale_grads=True)

def timed_step(batch):
    barrier()
    start = time.perf_counter()
    schedule.step(batch)
    synchronize()
    barrier()
    return time.perf_counter() - start
"""
CODES = edited(
    _RIGHT,
    {
        "unscaled": [("scale_grads=True", "scale_grads=False")],
        "dropped_layer": [("    return parts", "    return [*parts[:-1], parts[-1][1:]]")],
        "first_rank_clock": [("    synchronize()\n    barrier()\n", "    synchronize()\n")],
    },
)
