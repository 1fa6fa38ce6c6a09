"""The suspects of lab 10 as code, shortened: the right program, and what each bug changes in it."""

from labkit.course.lineup import edited

_RIGHT = """
class Bucketed:
    def __init__(self, model, bucket_mb):
        for weight in model.parameters():
            broadcast(weight, src=0)
        weights = reversed([*model.parameters()])
        self.buckets = fill(weights, bucket_mb)
        self.sending = []

    def bucket_is_full(self, bucket):
        bucket.flat /= ranks
        work = all_reduce(bucket.flat, async_op=True)
        self.sending.append(work)

    def finish(self):
        for work in self.sending:
            work.wait()
        self.sending.clear()
"""
CODES = edited(
    _RIGHT,
    {
        "one_rank": [("all_reduce(bucket.flat, async_op=True)", "reduce(bucket.flat, dst=0, async_op=True)")],
        "one_bucket": [("fill(weights, bucket_mb)", "fill(weights, inf)")],
        "undivided": [("        bucket.flat /= ranks\n", "")],
        "unwaited": [("        for work in self.sending:\n            work.wait()\n", "")],
        "no_first_broadcast": [
            ("        for weight in model.parameters():\n            broadcast(weight, src=0)\n", "")
        ],
    },
)
