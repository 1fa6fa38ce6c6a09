"""What notebooks take from labkit: `from labkit import launch` loads these rooms when a name is first used."""

from labkit import node
from labkit.charts.calibration import predictions_chart
from labkit.charts.conditions import conditions_chart
from labkit.charts.nodes import nodes_map
from labkit.claims import published_reports, show_claims
from labkit.course.course_map import course_map
from labkit.course.predictions import predict, predictions
from labkit.course.source import source
from labkit.engine.errors import RunError
from labkit.engine.plan import Plan
from labkit.engine.processes import members
from labkit.engine.recordings import replay
from labkit.engine.run import Run
from labkit.launching import launch, launch_or_replay
from labkit.node import here
from labkit.node.limits import against_limit
from labkit.parameters import check_parameters
from labkit.story.conditions import explain_conditions
from labkit.story.nodes import explain_links
from labkit.tables.nodes import nodes_table
from labkit.tables.published import published, published_topology
from labkit.trace_file import save_trace
