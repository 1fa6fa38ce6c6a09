"""One small run of each plan, for all tests of lab 07."""

import pytest

from labkit import launch
from lessons import precision_memory
from lessons.precision_memory.plan import VARIANTS

FEW_LEVERS = ("plain", "foreach AdamW", "gradients set to zero", "checkpoint every block", "checkpoint, selective")
FEW_LEVERS += ("optimizer in backward", "bfloat16 weights", "all: bfloat16, checkpoint, in backward")


@pytest.fixture(scope="session")
def small():
    """Gives a function from a plan's name to its small run, launched once."""
    plans = {
        "numbers": lambda: precision_memory.Numbers.small(),
        "scaling": lambda: precision_memory.Scaling.small(steps=12),
        "memory": lambda: precision_memory.Memory.small(sequences=(16, 48)),
        "timeline": lambda: precision_memory.Timeline.small(layers=2),
        "levers": lambda: precision_memory.Levers.small(levers=FEW_LEVERS, repeats=2, warm_ups=1),
        "trial": lambda: precision_memory.Trial.small(variants=VARIANTS),
    }
    known = {}

    def run(name):
        if name not in known:
            known[name] = launch(plans[name](), progress=False)
        return known[name]

    return run
