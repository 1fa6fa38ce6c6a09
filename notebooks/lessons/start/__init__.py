"""Lab 00, start: this machine, and how a run works."""

from typing import TYPE_CHECKING

from lessons import front_door

if TYPE_CHECKING:
    from lessons.start.charts import *  # noqa: F403
    from lessons.start.exercise import *  # noqa: F403
    from lessons.start.faults import *  # noqa: F403
    from lessons.start.plan import *  # noqa: F403
    from lessons.start.story import *  # noqa: F403
    from lessons.start.tables import *  # noqa: F403

RECORDED = "h200x4/start/hello"
COST = "h200x4/start/launchcost"
NODE = "h200x2/pipeline/kept"  # the first recorded node whose power caps and temperatures are known

__getattr__, __dir__ = front_door(__name__)
