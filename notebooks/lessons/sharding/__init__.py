"""Lab 05, sharding: GPT-2 Large four ways; which bytes are held, which are sent, and what is hidden behind what?"""

from labkit.engine.recordings import Recordings
from lessons.sharding.charts import (
    batches_chart,
    breakdown_chart,
    losses_chart,
    memory_chart,
    projection_chart,
    scaling_chart,
    trace_chart,
    waterfall_chart,
)
from lessons.sharding.exercise import attempts, check, diagnose, held_bytes, hint, show_suspects, solution, suspects
from lessons.sharding.explorer import explore
from lessons.sharding.plan import (
    Accumulation,
    AsReported,
    Batches,
    Ladder,
    Links,
    Losses,
    Profiles,
    Strategies,
    Timeline,
    Trial,
)
from lessons.sharding.story.projection import explain_links, explain_projection
from lessons.sharding.story.runs import (
    explain_equality,
    explain_overlap,
    explain_report_setup,
    explain_speed,
    explain_strategies,
    explain_training,
)
from lessons.sharding.tables.links import fits, links, projection
from lessons.sharding.tables.training import (
    accumulation,
    batches,
    equality,
    ladder,
    losses,
    memory,
    memory_timeline,
    operators,
    options,
    overlap,
    profile,
    reported,
    segments,
    sent,
    strategies,
    symptoms,
    trace_spans,
)
from lessons.sharding.targets import EXPECTED, scorecard

_ON_TWO = ("accumulation", "asreported", "batches", "ladder", "losses", "profiles", "timeline")
# The study trains on two GPUs. Its projection goes to eight: that lesson asks for the recordings nearest to eight.
RECORDED = Recordings(
    "sharding",
    2,
    {**dict.fromkeys(_ON_TWO, ("h200x2",)), **dict.fromkeys(("links", "strategies", "trial"), ("h200x2", "h200x4"))},
)
