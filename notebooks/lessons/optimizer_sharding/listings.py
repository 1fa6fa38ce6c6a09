"""The suspects of lab 11 as code, shortened: the right program, and what each bug changes in it."""

from labkit.course.lineup import edited

_RIGHT = """
class Sharded:
    def __init__(self, parameters, kind, **options):
        numbers = flat(parameters)
        self.parts = equal_parts(numbers, ranks)
        self.inner = kind(self.parts[rank], **options)

    def step(self):
        groups = zip(self.inner.groups, self.groups)
        for inside, outside in groups:
            inside["lr"] = outside["lr"]
        self.inner.step()
        for owner, part in enumerate(self.parts):
            broadcast(part, src=owner)

    def state_dict(self):
        states = all_gather(self.inner.state_dict())
        return joined(states)
"""
CODES = edited(
    _RIGHT,
    {
        "shards_nothing": [("self.inner = kind(self.parts[rank], **options)", "self.inner = kind(numbers, **options)")],
        "sends_nothing": [
            ("        for owner, part in enumerate(self.parts):\n            broadcast(part, src=owner)\n", "")
        ],
        "by_count": [
            (
                "        numbers = flat(parameters)\n        self.parts = equal_parts(numbers, ranks)\n",
                "        numbers = flat(parameters)\n        self.parts = equal_parts(parameters, ranks)\n",
            )
        ],
        "own_part": [("all_gather(self.inner.state_dict())", "[self.inner.state_dict()]")],
        "stale_rate": [
            (
                "        groups = zip(self.inner.groups, self.groups)\n"
                '        for inside, outside in groups:\n            inside["lr"] = outside["lr"]\n',
                "",
            )
        ],
    },
)
