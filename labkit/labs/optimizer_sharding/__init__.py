"""Lab 11, optimizer_sharding: N replicas keep the same optimizer states N times; what if each keeps a share?"""

from typing import TYPE_CHECKING

from labkit.labs import front_door

if TYPE_CHECKING:
    from labkit.labs.optimizer_sharding.charts import *  # noqa: F403
    from labkit.labs.optimizer_sharding.exercise import *  # noqa: F403
    from labkit.labs.optimizer_sharding.explorer import *  # noqa: F403
    from labkit.labs.optimizer_sharding.plan import *  # noqa: F403
    from labkit.labs.optimizer_sharding.story import *  # noqa: F403
    from labkit.labs.optimizer_sharding.tables.balance import *  # noqa: F403
    from labkit.labs.optimizer_sharding.tables.measured import *  # noqa: F403
    from labkit.labs.optimizer_sharding.targets import *  # noqa: F403
    from labkit.labs.optimizer_sharding.theory import *  # noqa: F403

RECORDED = {name: f"h200x2/optimizer_sharding/{name}" for name in ("memory", "steps", "buckets", "equality", "trial")}

__getattr__, __dir__ = front_door(__name__)
