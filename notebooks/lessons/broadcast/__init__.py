"""Lab 02, broadcast: one host tensor to every GPU; which part of the speed is the path, which is the memory?"""

from typing import TYPE_CHECKING

from lessons import front_door

if TYPE_CHECKING:
    from lessons.broadcast.charts import *  # noqa: F403
    from lessons.broadcast.exercise import *  # noqa: F403
    from lessons.broadcast.plan import *  # noqa: F403
    from lessons.broadcast.story import *  # noqa: F403
    from lessons.broadcast.tables import *  # noqa: F403
    from lessons.broadcast.targets import *  # noqa: F403
    from lessons.broadcast.theory import *  # noqa: F403

RECORDED = "h200x4/broadcast/sweep"
RECORDED_RING = "h200x2/broadcast/ring"

__getattr__, __dir__ = front_door(__name__)
