"""Lab 11, optimizer_sharding: N replicas keep the same optimizer states N times; what if each keeps a share?"""

from typing import TYPE_CHECKING

from labkit.engine.recordings import Recordings
from lessons import front_door

if TYPE_CHECKING:
    from lessons.optimizer_sharding.charts import *  # noqa: F403
    from lessons.optimizer_sharding.exercise import *  # noqa: F403
    from lessons.optimizer_sharding.explorer import *  # noqa: F403
    from lessons.optimizer_sharding.plan import *  # noqa: F403
    from lessons.optimizer_sharding.story import *  # noqa: F403
    from lessons.optimizer_sharding.tables.balance import *  # noqa: F403
    from lessons.optimizer_sharding.tables.measured import *  # noqa: F403
    from lessons.optimizer_sharding.targets import *  # noqa: F403
    from lessons.optimizer_sharding.theory import *  # noqa: F403

_ON_BOTH, _ON_TWO = ("memory", "equality"), ("steps", "buckets", "trial")
# The report trains on two GPUs; the runs on four are for the targets.
RECORDED = Recordings(
    "optimizer_sharding",
    2,
    {**dict.fromkeys(_ON_BOTH, ("h200x2", "h200x4")), **dict.fromkeys(_ON_TWO, ("h200x2",))},
)

__getattr__, __dir__ = front_door(__name__)
