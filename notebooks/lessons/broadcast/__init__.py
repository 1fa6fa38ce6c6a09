"""Lab 02, broadcast: one host tensor to every GPU; which part of the speed is the path, which is the memory?"""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from lessons.broadcast.charts import ablation_chart, chunk_curve, methods_chart, paths_drawing, timeline_chart
from lessons.broadcast.exercises import attempts, check, check_function, diagnose, hint, show_suspects, solution
from lessons.broadcast.exercises import suspects, why_faster
from lessons.broadcast.plan import Sweep, Trial
from lessons.broadcast.story import best_chunks, fastest, hidden, in_one_minute, memory_or_path
from lessons.broadcast.story import same_bytes, sizes_that_fit, ways_apart
from lessons.broadcast.tables import ablation, chunk_sweep, least_times, least_times_table, methods, symptoms, timeline

RECORDED = {"sweep": "h200x4/broadcast/sweep"} | {name: f"h200x2/broadcast/{name}" for name in ("trial", "suspects")}

stand_in(globals())
