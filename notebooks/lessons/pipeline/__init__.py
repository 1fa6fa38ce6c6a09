"""Lab 03, pipeline: BERT over several GPUs; where does the time go in which no stage works, and who fills it?"""

from typing import TYPE_CHECKING

from lessons import front_door

if TYPE_CHECKING:
    from lessons.pipeline.charts import *  # noqa: F403
    from lessons.pipeline.exercise import *  # noqa: F403
    from lessons.pipeline.explorer import *  # noqa: F403
    from lessons.pipeline.plan import *  # noqa: F403
    from lessons.pipeline.story import *  # noqa: F403
    from lessons.pipeline.tables.forecast import *  # noqa: F403
    from lessons.pipeline.tables.throughput import *  # noqa: F403
    from lessons.pipeline.tables.timeline import *  # noqa: F403
    from lessons.pipeline.targets import *  # noqa: F403
    from lessons.pipeline.theory.schedules import *  # noqa: F403
    from lessons.pipeline.theory.simulator import *  # noqa: F403

RECORDED = {
    name: f"h200x4/pipeline/{name}"
    for name in ("gpus", "layers", "microbatches", "precisions", "schedules", "splits", "trial")
}
KEPT_ACTIVATIONS = "h200x2/pipeline/kept"
TWO_GPUS = "h200x2/pipeline/microbatches2"
AS_REPORTED = "h200x2/pipeline/asreported"

__getattr__, __dir__ = front_door(__name__)
