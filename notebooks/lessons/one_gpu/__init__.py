"""Lab 17, one_gpu: how fast can one GPU train GPT-2 Large, and which change buys what?"""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from labkit.engine.recordings import Recordings
from lessons.one_gpu.charts import batches_chart, held_chart, waterfall_chart
from lessons.one_gpu.exercises import attempts, check, diagnose, hint, show_suspects, solution, suspects, why_fused
from lessons.one_gpu.exercises import yours
from lessons.one_gpu.plan import Batches, Head, Ladder, Trial
from lessons.one_gpu.story import answer, enough_sequences, fastest_step, in_float8, in_one_minute, power_limit
from lessons.one_gpu.tables import batches, float8, head, held, ladder, symptoms

RECORDED = Recordings("one_gpu", 1, {"ladder": ("h200",), "batches": ("h200x2",), "suspects": ("cpu",)})

stand_in(globals())
