"""Lab 01, topology: how the GPUs are wired to each other and to the host, as printed, as nominal, as measured."""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from lessons.topology.charts import host_chart, node_map, pairs_chart, rates_chart
from lessons.topology.exercises import attempts, check, hint, solution, why_below, yours
from lessons.topology.plan import Copies, Rings
from lessons.topology.story import beside_datasheet, far_node, in_one_minute, pairs_alike, pinning, placement
from lessons.topology.story import same_bytes, size_matters, together
from lessons.topology.tables import alone, copies, host_rates, link_rate, matrix

RECORDED = {"copies": "h200x4/topology/copies", "copies_1mib": "h200x2/topology/copies_1mib"}

stand_in(globals())
