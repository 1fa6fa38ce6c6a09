"""Lab 05, sharding: GPT-2 Large four ways; which bytes are held, which are sent, and what is hidden behind what?"""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from labkit.engine.recordings import Recordings
from lessons.sharding.charts import breakdown_chart, memory_chart, projection_chart, strategies_chart
from lessons.sharding.charts import trace_chart
from lessons.sharding.exercises import attempts, check, diagnose, hint, show_suspects, solution, suspects, yours
from lessons.sharding.explorer import explore
from lessons.sharding.plan import Accumulation, AsReported, Links, Profiles, Strategies
from lessons.sharding.plan import Timeline, Trial
from lessons.sharding.story import added_by_sharding, as_the_report, hidden_share
from lessons.sharding.story import in_one_minute, ledgers_agree, lines_fit, one_exchange
from lessons.sharding.story import projection_error, same_training, small_batch, worth_it
from lessons.sharding.tables import memory_timeline, operators, profile, segments, trace_spans
from lessons.sharding.tables import accumulation, equality, fits, links, memory
from lessons.sharding.tables import overlap, projection, reported, sent, strategies, symptoms

_ON_TWO = ("accumulation", "asreported", "profiles", "suspects", "timeline")
# The study trains on two GPUs. Its projection goes to eight: that lesson asks for the recordings nearest to eight.
RECORDED = Recordings(
    "sharding",
    2,
    {
        **dict.fromkeys(_ON_TWO, ("h200x2",)),
        **dict.fromkeys(("links", "strategies", "trial"), ("h200x2", "h200x4")),
    },
)

stand_in(globals())
