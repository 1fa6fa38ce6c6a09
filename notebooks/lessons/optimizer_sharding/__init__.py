"""Lab 11, optimizer_sharding: N replicas keep the same optimizer states N times; what if each keeps a share?"""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from labkit.engine.recordings import Recordings
from lessons.optimizer_sharding.charts import balance_chart, exchange_chart, memory_chart, stages_chart, steps_chart
from lessons.optimizer_sharding.exercises import attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.optimizer_sharding.exercises import why_shorter, yours
from lessons.optimizer_sharding.plan import Equality, Exchanges, Memory, Steps, Trial
from lessons.optimizer_sharding.story import beside_zero, even_shares, exchange_times, in_one_minute, ledger_holds
from lessons.optimizer_sharding.story import same_training, update_times, what_is_saved, whose_peaks
from lessons.optimizer_sharding.tables import balance, by_ranks, equality, exchanges, memory, owned, report_peaks
from lessons.optimizer_sharding.tables import saving, sent, stages, steps, symptoms

# The report trains on two GPUs; the runs on four are for the measures.
RECORDED = Recordings(
    "optimizer_sharding",
    2,
    {"memory": ("h200x2", "h200x4"), **dict.fromkeys(("equality", "steps", "exchanges", "suspects"), ("h200x2",))},
)

stand_in(globals())
