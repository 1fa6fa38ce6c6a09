"""Lab 04, ddp_fsdp: BERT replicated or sharded; what does a rank hold, what does it send, and what does that cost?"""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from labkit.engine.recordings import Recordings
from lessons.ddp_fsdp.charts import knobs_chart, ledger_chart, strategies_chart
from lessons.ddp_fsdp.exercises import attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.ddp_fsdp.exercises import why_so_little, yours
from lessons.ddp_fsdp.plan import BY_HAND, ZERO_RUNS, AsReported, Knobs, Layers, Strategies, Trial, Zero
from lessons.ddp_fsdp.plan import installed, zero_plans
from lessons.ddp_fsdp.story import collectives_agree, costs, features, in_one_minute, knobs_gain, ledger_holds
from lessons.ddp_fsdp.story import same_training, sample_memory, sharding_saves, zero_beside_fsdp
from lessons.ddp_fsdp.tables import compared, holdings, ladder, memory, per_sample, printed_per_sample, printed_runs
from lessons.ddp_fsdp.tables import sent, symptoms, throughput, trained, zero

_MACHINES = ("h200x2", "h200x4")
_ON_TWO = ("trial", "suspects", "asreported", "zero1", "zero2", "zero3", "zero3_zero")
# The reports train on four GPUs. On the recorded machine with four, FSDP at batch 16 and the knobs' last steps take
# longer than on two GPUs that have twice the samples each, probably for its host: the runs on two teach more.
RECORDED = Recordings(
    "ddp_fsdp",
    4,
    {"strategies": _MACHINES, "knobs": _MACHINES, **dict.fromkeys(_ON_TWO, _MACHINES[:1])},
    own_gpus={"strategies": 2, "knobs": 2},
)

stand_in(globals())
