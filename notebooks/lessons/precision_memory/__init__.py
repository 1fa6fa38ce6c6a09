"""Lab 07, precision_memory: what do fewer bits change: in sums, in training, in time and in memory?"""

from typing import TYPE_CHECKING

from lessons import front_door

if TYPE_CHECKING:
    from lessons.precision_memory.charts.memory import *  # noqa: F403
    from lessons.precision_memory.charts.numbers import *  # noqa: F403
    from lessons.precision_memory.exercise import *  # noqa: F403
    from lessons.precision_memory.explorer import *  # noqa: F403
    from lessons.precision_memory.plan import *  # noqa: F403
    from lessons.precision_memory.story.memory import *  # noqa: F403
    from lessons.precision_memory.story.numbers import *  # noqa: F403
    from lessons.precision_memory.tables.memory import *  # noqa: F403
    from lessons.precision_memory.tables.numbers import *  # noqa: F403
    from lessons.precision_memory.targets import *  # noqa: F403
    from lessons.precision_memory.theory.floats import *  # noqa: F403
    from lessons.precision_memory.theory.levers import *  # noqa: F403
    from lessons.precision_memory.theory.memory import *  # noqa: F403

_PLANS = ("numbers", "scaling", "speed", "memory", "timeline", "levers", "trial")
RECORDED = {name: f"h200/precision_memory/{name}" for name in _PLANS}

__getattr__, __dir__ = front_door(__name__)
