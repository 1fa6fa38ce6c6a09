"""Lab 00, start: this machine, and how a run works."""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from lessons.start.charts import best_chart, collectives_drawing, startup_chart, sums_chart, wall_drawing
from lessons.start.exercises import attempts, check, hint, solution, why_first
from lessons.start.faults import cause, failures
from lessons.start.plan import BertStep, Failure, Hello, LaunchCost
from lessons.start.story import all_there, first_over_later, first_sum, in_one_minute, longest_part, nothing_left
from lessons.start.story import show_error, sweep_saves, while_it_moves
from lessons.start.tables import best_times, launch_costs, ranks, startup, sums

_FAILURES = {kind: f"h200x2/start/{kind}" for kind in ("raises", "killed", "leaves", "hangs")}
RECORDED = {"hello": "h200x4/start/hello"} | _FAILURES
COST = "h200x2/start/launchcost"
NODE = "h200x2/pipeline/kept"  # the first recorded node whose power caps and temperatures are known

stand_in(globals())
