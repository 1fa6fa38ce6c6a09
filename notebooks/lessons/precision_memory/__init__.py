"""Lab 07, precision_memory: what do fewer bits change: in sums, in training, in time and in memory?"""

from lessons.precision_memory.charts.memory import ledger_chart, pareto_chart, speed_chart, timeline_chart
from lessons.precision_memory.charts.numbers import norms_chart, scaling_chart, spacing_chart, sums_chart
from lessons.precision_memory.exercises import attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.precision_memory.explorer import explore_bits
from lessons.precision_memory.plan import Levers, Memory, Numbers, Scaling, Speed, Timeline, Trial
from lessons.precision_memory.story.memory import explain_levers, explain_memory, explain_speed, explain_timeline
from lessons.precision_memory.story.numbers import explain_autocast, explain_scaling, explain_sums
from lessons.precision_memory.tables.memory import (
    allocations,
    levers,
    memory,
    published_speed,
    speed,
    symptoms,
    timeline,
)
from lessons.precision_memory.tables.numbers import dtypes, gradients, norms, running_sums, scaling, spacing, sums

_PLANS = ("numbers", "scaling", "speed", "memory", "timeline", "levers", "trial")
RECORDED = {name: f"h200/precision_memory/{name}" for name in _PLANS}
