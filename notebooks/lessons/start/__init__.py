"""Lab 00, start: this machine, and how a run works."""

from lessons.start.charts import best_chart, collectives_drawing, cost_chart, startup_chart, sums_chart, wall_drawing
from lessons.start.exercise import attempts, check, hint, solution
from lessons.start.faults import cause, failures
from lessons.start.plan import BertStep, Failure, Hello, LaunchCost
from lessons.start.story import (
    explain_cost,
    explain_failure,
    explain_left,
    explain_ranks,
    explain_size,
    explain_startup,
    point_to_claims,
    show_error,
)
from lessons.start.tables import best_times, launch_costs, ranks, scorecard, startup, sums

RECORDED = "h200x4/start/hello"
COST = "h200x4/start/launchcost"
NODE = "h200x2/pipeline/kept"  # the first recorded node whose power caps and temperatures are known
