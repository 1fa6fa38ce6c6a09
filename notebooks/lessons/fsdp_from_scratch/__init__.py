"""Lab 15, fsdp_from_scratch: weights that are whole only while they compute, and what gathering them costs."""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from labkit.engine.recordings import Recordings
from lessons.fsdp_from_scratch.charts import hiding_chart, steps_chart, timeline_chart, whole_chart
from lessons.fsdp_from_scratch.exercises import attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.fsdp_from_scratch.exercises import why_not_larger_units, yours
from lessons.fsdp_from_scratch.explorer import explore
from lessons.fsdp_from_scratch.plan import Batches, Equality, Steps, Timeline, Trial
from lessons.fsdp_from_scratch.story import all_right, as_formula, from_how_many_tokens, in_one_minute
from lessons.fsdp_from_scratch.story import what_release_saves, what_stages_save, what_units_cost
from lessons.fsdp_from_scratch.tables import batches, cases, ledgers, peaks, stages, steps, symptoms, timelines

RECORDED = Recordings(
    "fsdp_from_scratch", 2, dict.fromkeys(("equality", "steps", "batches", "timeline", "suspects"), ("h200x2",))
)

stand_in(globals())
