"""Lab 03, pipeline: BERT over several GPUs; where does the time go in which no stage works, and who fills it?"""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from lessons.pipeline.charts import bubble_chart, gpus_chart, memory_chart, micro_batch_curve, timelines_chart
from lessons.pipeline.exercises import attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.pipeline.exercises import why_streams_gain, yours
from lessons.pipeline.explorer import explore, slider_answers
from lessons.pipeline.plan import AsReported, Gpus, MicroBatches, Schedules, Splits, Trial
from lessons.pipeline.story import best_counts, bubbles_met, first_entries, in_one_minute, memory_falls
from lessons.pipeline.story import receives_matter, reports_model, same_result, schedules_memory, splits_cost
from lessons.pipeline.story import streams_gain
from lessons.pipeline.tables.timeline import split_forecast
from lessons.pipeline.tables.throughput import as_reported, equality, memory, speedups, symptoms, throughput
from lessons.pipeline.tables.timeline import BEFORE_USE, gantt, ideal, predictions, queues
from lessons.pipeline.theory.queues import RANK as ONE_QUEUE

RECORDED = {name: f"h200x4/pipeline/{name}" for name in ("gpus", "microbatches", "schedules", "splits", "trial")}
RECORDED |= {name: f"h200x2/pipeline/{name}" for name in ("by_hand", "suspects")}
TWO_GPUS = "h200x2/pipeline/microbatches2"
AS_REPORTED = "h200x2/pipeline/asreported"

stand_in(globals())
