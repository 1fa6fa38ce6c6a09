"""Lab 08, attention: must a GPU ever write down N² scores?"""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from lessons.attention.charts import attention_chart, memory_chart, plain_chart, race_chart
from lessons.attention.charts import tiles_chart
from lessons.attention.exercises import attempts, check, diagnose, hint, show_suspects, solution, suspects, yours
from lessons.attention.exercises import why_four_matrices
from lessons.attention.explorer import explore
from lessons.attention.plan import Errors, Memory, Plain, Race, Sweep, Trial
from lessons.attention.story import clock_waits, exact, gain, host_or_kernel, in_one_minute, matrices
from lessons.attention.story import one_generation, who_fits
from lessons.attention.tables.memory import errors, held, plain
from lessons.attention.tables.printed import printed_times
from lessons.attention.tables.speed import race, sweep
from lessons.attention.theory import example, tiled

RECORDED = {name: f"h200/attention/{name}" for name in ("memory", "compiled", "errors", "race", "suspects")}
RECORDED |= {name: f"h100/attention/{name}" for name in ("plain", "sweep")}  # on the GPU that the reports timed, too

stand_in(globals())
