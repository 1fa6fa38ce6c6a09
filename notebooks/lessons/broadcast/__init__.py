"""Lab 02, broadcast: one host tensor to every GPU; which part of the speed is the path, which is the memory?"""

from lessons.broadcast.charts import (
    ablation_chart,
    chunk_curve,
    compare_chart,
    methods_chart,
    paths_drawing,
    timeline_chart,
)
from lessons.broadcast.exercises import (
    attempts,
    check,
    check_function,
    diagnose,
    hint,
    show_suspects,
    solution,
    suspects,
    why_faster,
)
from lessons.broadcast.plan import Sweep, Trial
from lessons.broadcast.story import explain_chunks, explain_host_rates, explain_methods, explain_pinning, explain_ring
from lessons.broadcast.tables import (
    ablation,
    best,
    causes,
    chunk_sweep,
    compare,
    host_rates,
    ladder,
    least_times,
    least_times_table,
    methods,
    overlap,
    ring_position,
    symptoms,
    timeline,
)

RECORDED = "h200x4/broadcast/sweep"
RECORDED_RING = "h200x2/broadcast/ring"
