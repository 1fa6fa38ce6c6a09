"""Lab 02, broadcast: one host tensor to every GPU; which part of the speed is the path, which is the memory?"""

from labkit.labs.broadcast.charts import (
    ablation_chart,
    chunk_curve,
    compare_chart,
    methods_chart,
    paths_drawing,
    timeline_chart,
)
from labkit.labs.broadcast.checks import check
from labkit.labs.broadcast.plan import Sweep, Trial
from labkit.labs.broadcast.story import (
    conclude,
    doubt_ladder,
    explain_chunks,
    explain_compare,
    explain_methods,
    explain_overlap,
    explain_pinning,
)
from labkit.labs.broadcast.tables import (
    ablation,
    best,
    chunk_sweep,
    compare,
    ladder,
    methods,
    overlap,
    scorecard,
    symptoms,
    theory,
    timeline,
)

RECORDED = "h200x4/broadcast/sweep"
