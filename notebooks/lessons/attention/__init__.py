"""Lab 08, attention: must a GPU ever write down N² scores, and how fast can it be if it does not?"""

from typing import TYPE_CHECKING

from lessons import front_door

if TYPE_CHECKING:
    from lessons.attention.charts.memory import *  # noqa: F403
    from lessons.attention.charts.speed import *  # noqa: F403
    from lessons.attention.exercise import *  # noqa: F403
    from lessons.attention.explorer import *  # noqa: F403
    from lessons.attention.plan import *  # noqa: F403
    from lessons.attention.story.memory import *  # noqa: F403
    from lessons.attention.story.speed import *  # noqa: F403
    from lessons.attention.tables.memory import *  # noqa: F403
    from lessons.attention.tables.printed import *  # noqa: F403
    from lessons.attention.tables.speed import *  # noqa: F403
    from lessons.attention.targets import *  # noqa: F403
    from lessons.attention.theory import *  # noqa: F403

RECORDED = {name: f"h200/attention/{name}" for name in ("memory", "compiled", "errors", "tuning", "race", "trial")}
RECORDED |= {name: f"h100/attention/{name}" for name in ("plain", "sweep")}  # on the GPU that the reports timed, too

__getattr__, __dir__ = front_door(__name__)
