"""Lab 10, ddp_from_scratch: four ways to average gradients, and how much of the sending backward can hide."""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from labkit.engine.recordings import Recordings
from lessons.ddp_from_scratch.charts import breakdown_chart, buckets_chart, flights_chart, steps_chart, trace_chart
from lessons.ddp_from_scratch.exercises import attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.ddp_from_scratch.exercises import why_not_smaller, yours
from lessons.ddp_from_scratch.explorer import explore
from lessons.ddp_from_scratch.plan import Buckets, Equality, Implementations, Profiles, Trial
from lessons.ddp_from_scratch.story import all_right, best_size, in_one_minute, sent_early, what_is_hidden
from lessons.ddp_from_scratch.tables import buckets, cases, costs, curve, equality, implementations, overhead, overlap
from lessons.ddp_from_scratch.tables import profile, symptoms, trace_spans
from lessons.ddp_from_scratch.theory import NAMES

_ON_BOTH = ("implementations", "buckets")
_ON_TWO = ("report_32", "report_128", "equality", "profiles", "trial", "suspects")
# The report trains on two GPUs, and its own setting comes first: a page of recorded runs shows it.
# The runs on four are for the measures.
RECORDED = Recordings(
    "ddp_from_scratch",
    2,
    {**dict.fromkeys(_ON_TWO, ("h200x2",)), **dict.fromkeys(_ON_BOTH, ("h200x2", "h200x4"))},
)

stand_in(globals())
