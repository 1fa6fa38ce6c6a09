"""Lab 01, topology: how the GPUs are wired to each other and to the host, as printed, as nominal, as measured."""

from labkit.labs.topology.charts import copy_heatmap, host_chart, node_map, nominal_chart, share_chart
from labkit.labs.topology.plan import Copies
from labkit.labs.topology.story import (
    conclude,
    doubt_sockets,
    explain_host,
    explain_matrix,
    explain_numa,
    explain_placement,
)
from labkit.labs.topology.tables import (
    claims,
    copy_matrix,
    devices,
    host_links,
    host_summary,
    nominal,
    numa_effect,
    scorecard,
)

RECORDED = "h200x4/topology/copies"
