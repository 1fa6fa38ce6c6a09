"""Lab 06, benchmarking: where does a step's time go?"""

from lessons.benchmarking.charts.profiles import families_chart, roofline_chart, timeline_chart
from lessons.benchmarking.charts.steps import (
    first_calls_chart,
    iterations_chart,
    launches_chart,
    modes_chart,
    phases_chart,
)
from lessons.benchmarking.exercises import (
    attempts,
    check,
    diagnose,
    hint,
    show_suspects,
    solution,
    suspects,
    why_so_far,
)
from lessons.benchmarking.explorer import explore
from lessons.benchmarking.plan import FirstCalls, Launches, Profiles, Steps, Trial
from lessons.benchmarking.story.firsts import explain_first_calls, explain_iterations
from lessons.benchmarking.story.profiles import explain_profile, explain_roofline
from lessons.benchmarking.story.steps import explain_launches, explain_modes, explain_steps
from lessons.benchmarking.tables.launches import launches
from lessons.benchmarking.tables.profiles import (
    accounts,
    attention_parts,
    export_trace,
    families,
    kernels,
    roofline,
    timeline,
)
from lessons.benchmarking.tables.steps import (
    first_calls,
    first_iterations,
    first_kinds,
    iterations,
    modes,
    steps,
    warm_ups,
)
from lessons.benchmarking.tables.trials import symptoms

RECORDED = {name: f"h200/benchmarking/{name}" for name in ("steps", "firstcalls", "launches", "profiles", "trial")}
