"""Lab 09, collectives: what does moving bytes between GPUs cost, and when is it latency, when bandwidth?"""

from labkit.engine.recordings import Recordings
from lessons.collectives.charts.comparisons import growth_chart, overview_chart, published_chart, ring_chart
from lessons.collectives.charts.reference import against_chart
from lessons.collectives.charts.sizes import bandwidth_chart, time_chart
from lessons.collectives.exercises import (
    attempts,
    check,
    diagnose,
    hint,
    show_suspects,
    solution,
    suspects,
    why_so_long,
)
from lessons.collectives.explorer import explore
from lessons.collectives.plan import NcclTests, Ring, Sweep, Trial
from lessons.collectives.story.lines import explain_fit, explain_growth
from lessons.collectives.story.rates import explain_bandwidth, explain_latency, explain_ring
from lessons.collectives.story.reference import explain_against
from lessons.collectives.tables import (
    against,
    bandwidths,
    caught,
    fits,
    published_fits,
    published_times,
    residuals,
    rings,
    symptoms,
)
from lessons.collectives.theory import ring

_MACHINES = ("h200x2", "h200x4")
# Four GPUs are nearest to the reports, which print 2, 4 and 6 processes, and up to 4 GPUs.
RECORDED = Recordings(
    "collectives",
    4,
    {**dict.fromkeys(("sweep", "nccltests", "ring"), _MACHINES), "growth": ("h200x2",), "trial": ("h200x2",)},
)
