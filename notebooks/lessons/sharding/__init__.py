"""Lab 05, sharding: GPT-2 Large four ways; which bytes are held, which are sent, and what is hidden behind what?"""

from typing import TYPE_CHECKING

from labkit.engine.recordings import Recordings
from lessons import front_door

if TYPE_CHECKING:
    from lessons.sharding.charts import *  # noqa: F403
    from lessons.sharding.exercise import *  # noqa: F403
    from lessons.sharding.explorer import *  # noqa: F403
    from lessons.sharding.plan import *  # noqa: F403
    from lessons.sharding.story.projection import *  # noqa: F403
    from lessons.sharding.story.runs import *  # noqa: F403
    from lessons.sharding.tables.links import *  # noqa: F403
    from lessons.sharding.tables.training import *  # noqa: F403
    from lessons.sharding.targets import *  # noqa: F403
    from lessons.sharding.theory import *  # noqa: F403

_ON_TWO = ("accumulation", "asreported", "batches", "ladder", "losses", "profiles", "timeline")
# The study trains on two GPUs. Its projection goes to eight: that lesson asks for the recordings nearest to eight.
RECORDED = Recordings(
    "sharding",
    2,
    {**dict.fromkeys(_ON_TWO, ("h200x2",)), **dict.fromkeys(("links", "strategies", "trial"), ("h200x2", "h200x4"))},
)

__getattr__, __dir__ = front_door(__name__)
