"""Lab 04, ddp_fsdp: BERT replicated or sharded; what does a rank hold, what does it send, and what does that cost?"""

from typing import TYPE_CHECKING

from labkit.labs import front_door

if TYPE_CHECKING:
    from labkit.labs.ddp_fsdp.charts import *  # noqa: F403
    from labkit.labs.ddp_fsdp.exercise import *  # noqa: F403
    from labkit.labs.ddp_fsdp.plan import *  # noqa: F403
    from labkit.labs.ddp_fsdp.story import *  # noqa: F403
    from labkit.labs.ddp_fsdp.tables import *  # noqa: F403
    from labkit.labs.ddp_fsdp.targets import *  # noqa: F403

RECORDED = {
    name: f"h200x2/ddp_fsdp/{name}"
    for name in (
        *("strategies", "knobs", "trial", "asreported", "accumulation"),
        *("zero1", "zero2", "zero3", "zero3_zero"),
    )
}

__getattr__, __dir__ = front_door(__name__)
