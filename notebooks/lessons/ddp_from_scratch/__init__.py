"""Lab 10, ddp_from_scratch: four ways to average gradients, and how much of the sending backward can hide."""

from typing import TYPE_CHECKING

from labkit.engine.recordings import Recordings
from lessons import front_door

if TYPE_CHECKING:
    from lessons.ddp_from_scratch.charts import *  # noqa: F403
    from lessons.ddp_from_scratch.exercise import *  # noqa: F403
    from lessons.ddp_from_scratch.explorer import *  # noqa: F403
    from lessons.ddp_from_scratch.plan import *  # noqa: F403
    from lessons.ddp_from_scratch.story import *  # noqa: F403
    from lessons.ddp_from_scratch.tables.buckets import *  # noqa: F403
    from lessons.ddp_from_scratch.tables.steps import *  # noqa: F403
    from lessons.ddp_from_scratch.targets import *  # noqa: F403
    from lessons.ddp_from_scratch.theory import *  # noqa: F403

_ON_BOTH, _ON_TWO = ("implementations", "buckets", "equality"), ("profiles", "trial", "report_128", "report_32")
# The report trains on two GPUs; the runs on four are for the targets.
RECORDED = Recordings(
    "ddp_from_scratch",
    2,
    {**dict.fromkeys(_ON_BOTH, ("h200x2", "h200x4")), **dict.fromkeys(_ON_TWO, ("h200x2",))},
)

__getattr__, __dir__ = front_door(__name__)
