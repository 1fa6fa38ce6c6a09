"""Lab 01, topology: how the GPUs are wired to each other and to the host, as printed, as nominal, as measured."""

from lessons.topology.charts.copies import compare_chart, copy_heatmap, host_chart, share_chart
from lessons.topology.charts.node_map import node_map
from lessons.topology.exercises import attempts, check, hint, solution, why_below
from lessons.topology.plan import Copies
from lessons.topology.story import explain_host, explain_matrix, explain_numa, explain_placement
from lessons.topology.tables import (
    claimed_sockets,
    compare,
    copy_matrix,
    devices,
    host_links,
    host_summary,
    link_rate,
    nominal,
    numa_effect,
    on_nodes,
)

RECORDED = "h200x4/topology/copies"
