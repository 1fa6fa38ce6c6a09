"""Lab 07, precision_memory: what do 16 bits instead of 32 change: in sums, in training and in memory?"""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from lessons.precision_memory.charts import ledger_chart, levers_chart, scaling_chart, spacing_chart, sums_chart
from lessons.precision_memory.charts import timeline_chart
from lessons.precision_memory.exercises import attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.precision_memory.exercises import why_it_stalls, yours
from lessons.precision_memory.explorer import explore_bits
from lessons.precision_memory.plan import Levers, Memory, Numbers, Scaling, Timeline, Trial
from lessons.precision_memory.story import bytes_as_computed, casts, in_one_minute, largest_allocation, leanest
from lessons.precision_memory.story import ledger_explains, not_half, scale_saves, scaler_agrees, sum_stalls
from lessons.precision_memory.tables import allocations, gradients, levers, memory, running_sums, scaling
from lessons.precision_memory.tables import spacing, sums, symptoms, timeline

_PLANS = ("numbers", "scaling", "memory", "timeline", "levers", "suspects")
RECORDED = {name: f"h200/precision_memory/{name}" for name in _PLANS}

stand_in(globals())
