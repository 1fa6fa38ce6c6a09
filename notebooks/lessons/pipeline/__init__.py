"""Lab 03, pipeline: BERT over several GPUs; where does the time go in which no stage works, and who fills it?"""

from lessons.pipeline.charts import (
    bubble_chart,
    gantt_chart,
    gpus_chart,
    memory_chart,
    micro_batch_curve,
    schedules_chart,
    splits_chart,
)
from lessons.pipeline.exercises import (
    attempts,
    check,
    diagnose,
    hint,
    show_suspects,
    solution,
    suspects,
    why_streams_gain,
)
from lessons.pipeline.explorer import explore
from lessons.pipeline.plan import AsReported, Gpus, Layers, MicroBatches, Precisions, Schedules, Splits, Trial
from lessons.pipeline.story import (
    explain_as_reported,
    explain_bubbles,
    explain_equality,
    explain_gpus,
    explain_micro_batches,
    explain_precisions,
    explain_splits,
)
from lessons.pipeline.tables.forecast import parts, split_forecast, splits_ranked
from lessons.pipeline.tables.throughput import (
    as_reported,
    balance,
    equality,
    memory,
    precisions,
    speedups,
    symptoms,
    throughput,
)
from lessons.pipeline.tables.timeline import gantt, ideal, predictions
from lessons.pipeline.theory.schedules import one_f_one_b

RECORDED = {
    name: f"h200x4/pipeline/{name}"
    for name in ("gpus", "layers", "microbatches", "precisions", "schedules", "splits", "trial")
}
KEPT_ACTIVATIONS = "h200x2/pipeline/kept"
TWO_GPUS = "h200x2/pipeline/microbatches2"
AS_REPORTED = "h200x2/pipeline/asreported"
