"""Lab 08, attention: must a GPU ever write down N² scores, and how fast can it be if it does not?"""

from lessons.attention.charts.memory import memory_chart, tiles_chart
from lessons.attention.charts.speed import attention_chart, compiled_chart, plain_chart, race_chart, sweep_chart
from lessons.attention.exercise import attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.attention.explorer import explore
from lessons.attention.plan import Errors, Memory, Plain, Race, Sweep, Trial, Tuning
from lessons.attention.story.memory import explain_errors, explain_memory, explain_plain
from lessons.attention.story.speed import explain_race, explain_sweep
from lessons.attention.tables.memory import compiled_gains, errors, held, limit, plain
from lessons.attention.tables.printed import printed_times
from lessons.attention.tables.speed import floor, race, sweep, tiles
from lessons.attention.theory import example, tiled

RECORDED = {name: f"h200/attention/{name}" for name in ("memory", "compiled", "errors", "tuning", "race", "trial")}
RECORDED |= {name: f"h100/attention/{name}" for name in ("plain", "sweep")}  # on the GPU that the reports timed, too
