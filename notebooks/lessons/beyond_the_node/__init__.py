"""Lab 14, beyond the node: what a slow link between nodes costs, and which ways of training it allows."""

from lessons.beyond_the_node.charts.links import lines_chart
from lessons.beyond_the_node.charts.projection import projection_chart, published_chart, two_levels_chart
from lessons.beyond_the_node.charts.steps import efficiency_chart, local_steps_chart, strategies_chart, turning_chart
from lessons.beyond_the_node.exercise import attempts, check, hint, solution
from lessons.beyond_the_node.explorer import explore
from lessons.beyond_the_node.plan import LocalSteps, Messages, Strategies
from lessons.beyond_the_node.story.links import explain_gain, explain_lines
from lessons.beyond_the_node.story.projection import (
    explain_link_rate,
    explain_projection,
    explain_traffic,
    explain_two_levels,
)
from lessons.beyond_the_node.story.steps import (
    explain_efficiency,
    explain_local_steps,
    explain_strategies,
    explain_turning,
)
from lessons.beyond_the_node.tables.measured import (
    exchanges,
    levels_at,
    levels_gain,
    local_steps,
    messages,
    strategies,
    two_lines,
)
from lessons.beyond_the_node.tables.projection import (
    by_link_rate,
    hop_line,
    link_traffic,
    projection,
    published_scaling,
    simulated_slowest,
    two_levels,
)
from lessons.beyond_the_node.targets import scorecard, targets_of
from lessons.beyond_the_node.theory.levels import Link, mesh_groups
from lessons.beyond_the_node.theory.steps import stalled_share

RECORDED = {name: f"two_namespaces/beyond_the_node/{name}" for name in ("messages", "strategies", "localsteps")}
