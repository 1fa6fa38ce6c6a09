"""Lab 04, ddp_fsdp: BERT replicated or sharded; what does a rank hold, what does it send, and what does that cost?"""

from typing import TYPE_CHECKING

from labkit.engine.recordings import Recordings
from lessons import front_door

if TYPE_CHECKING:
    from lessons.ddp_fsdp.charts import *  # noqa: F403
    from lessons.ddp_fsdp.exercise import *  # noqa: F403
    from lessons.ddp_fsdp.plan import *  # noqa: F403
    from lessons.ddp_fsdp.story import *  # noqa: F403
    from lessons.ddp_fsdp.tables import *  # noqa: F403
    from lessons.ddp_fsdp.targets import *  # noqa: F403

_MACHINES = ("h200x2", "h200x4")
_ON_TWO = ("trial", "asreported", "accumulation", "zero1", "zero2", "zero3", "zero3_zero")
# The reports train on four GPUs. The host of the recorded machine with four starts kernels more slowly than its GPUs
# compute batch 16 and the knobs' last steps: there these runs show the host, and those on two GPUs teach more.
RECORDED = Recordings(
    "ddp_fsdp",
    4,
    {"strategies": _MACHINES, "knobs": _MACHINES, **dict.fromkeys(_ON_TWO, _MACHINES[:1])},
    own_gpus={"strategies": 2, "knobs": 2},
)

__getattr__, __dir__ = front_door(__name__)
