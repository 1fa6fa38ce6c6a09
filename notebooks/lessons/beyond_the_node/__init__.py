"""Lab 14, beyond the node: what a slow link between nodes costs, and which ways of training it allows."""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from lessons.beyond_the_node.charts import efficiency_chart, lines_chart, local_steps_chart, projection_chart
from lessons.beyond_the_node.charts import published_chart, strategies_chart, turning_chart, two_levels_chart
from lessons.beyond_the_node.exercises import attempts, check, hint, solution, why_less, yours
from lessons.beyond_the_node.explorer import explore
from lessons.beyond_the_node.plan import LocalSteps, Messages, Strategies
from lessons.beyond_the_node.story import fewer_bytes, hierarchy_helps, hsdp_sends_less, in_one_minute, limits_at_scale
from lessons.beyond_the_node.story import judged, lines_are_rates, link_needed, local_steps_cost, sharded_steps
from lessons.beyond_the_node.story import which_knob, within_band
from lessons.beyond_the_node.tables import exchanges, levels_gain, link_traffic, local_steps, messages
from lessons.beyond_the_node.tables import needed_links, projection, published_scaling, simulated_slowest, strategies
from lessons.beyond_the_node.tables import two_levels, two_lines
from lessons.beyond_the_node.theory import Link, stalled_share

RECORDED = {name: f"two_namespaces/beyond_the_node/{name}" for name in ("messages", "strategies", "localsteps")}

stand_in(globals())
