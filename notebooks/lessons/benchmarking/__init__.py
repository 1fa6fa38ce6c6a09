"""Lab 06, benchmarking: where does a step's time go?"""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from lessons.benchmarking.charts import families_chart, iterations_chart, launches_chart, modes_chart, phases_chart
from lessons.benchmarking.charts import roofline_chart, timeline_chart
from lessons.benchmarking.exercises import attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.benchmarking.exercises import why_so_far
from lessons.benchmarking.explorer import explore
from lessons.benchmarking.plan import Launches, Profiles, Steps, Trial
from lessons.benchmarking.story import bytes_or_flop, clocks_agree, faster_units, first_iteration, five_answers
from lessons.benchmarking.story import in_one_minute, larger_is_faster, launch_model, launches_or_fusion, mean_or_median
from lessons.benchmarking.tables import accounts, export_trace, families, iterations, launches, modes, roofline, steps
from lessons.benchmarking.tables import symptoms, timelines, warm_ups

RECORDED = {name: f"h100/benchmarking/{name}" for name in ("steps", "launches", "profiles")}
RECORDED["suspects"] = "h200/benchmarking/suspects"

stand_in(globals())
