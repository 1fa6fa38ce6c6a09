"""Lab 11, optimizer_sharding: N replicas keep the same optimizer states N times; what if each keeps a share?"""

from labkit.engine.recordings import Recordings
from lessons.optimizer_sharding.charts import (
    balance_chart,
    buckets_chart,
    memory_chart,
    report_chart,
    stages_chart,
    steps_chart,
)
from lessons.optimizer_sharding.exercise import attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.optimizer_sharding.explorer import explore
from lessons.optimizer_sharding.plan import Buckets, Equality, Memory, Steps, Trial
from lessons.optimizer_sharding.story import (
    explain_balance,
    explain_buckets,
    explain_equality,
    explain_memory,
    explain_stages,
    explain_steps,
)
from lessons.optimizer_sharding.tables.balance import balance, by_ranks, equality, owned, read_report, stages, symptoms
from lessons.optimizer_sharding.tables.measured import buckets, memory, saving, sent, steps
from lessons.optimizer_sharding.targets import scorecard
from lessons.optimizer_sharding.theory import shards

_ON_BOTH, _ON_TWO = ("memory", "equality"), ("steps", "buckets", "trial")
# The report trains on two GPUs; the runs on four are for the targets.
RECORDED = Recordings(
    "optimizer_sharding",
    2,
    {**dict.fromkeys(_ON_BOTH, ("h200x2", "h200x4")), **dict.fromkeys(_ON_TWO, ("h200x2",))},
)
