"""Lab 09, collectives: what does moving bytes between GPUs cost, and when is it latency, when bandwidth?"""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from labkit.engine.recordings import Recordings
from lessons.collectives.charts import bandwidth_chart, reports_chart, ring_chart, rings_chart, times_chart
from lessons.collectives.exercises import attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.collectives.exercises import why_so_long, yours
from lessons.collectives.explorer import explore
from lessons.collectives.plan import NcclTests, Ring, Sweep, Trial
from lessons.collectives.story import beside_nccl_tests, clues, first_call, in_one_minute, knee, libraries
from lessons.collectives.story import reached, same_sums, smallest, start_up
from lessons.collectives.tables import against, bandwidths, fits, published_times, ring_lines, rings, symptoms
from lessons.collectives.theory import ring

_MACHINES = ("h200x2", "h200x4")
# Four GPUs are nearest to the reports, which print 2, 4 and 6 processes, and up to 4 GPUs.
RECORDED = Recordings(
    "collectives",
    4,
    {"sweep": _MACHINES, "nccltests": _MACHINES, "ring": ("h200x4",), "suspects": ("h200x2",)},
)

stand_in(globals())
