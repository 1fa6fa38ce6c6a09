"""Lab 04, ddp_fsdp: BERT replicated or sharded; what does a rank hold, what does it send, and what does that cost?"""

from labkit.engine.recordings import Recordings
from lessons.ddp_fsdp.charts import (
    differences_chart,
    ledger_chart,
    per_sample_chart,
    strategies_chart,
    waterfall_chart,
    zero_chart,
)
from lessons.ddp_fsdp.exercises import attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.ddp_fsdp.plan import (
    ZERO_RUNS,
    Accumulation,
    AsReported,
    Knobs,
    Strategies,
    Trial,
    Zero,
    installed,
    zero_plans,
)
from lessons.ddp_fsdp.story import (
    explain_accumulation,
    explain_equality,
    explain_knobs,
    explain_ledgers,
    explain_memory,
    explain_per_sample,
    explain_sent,
    explain_speed,
    explain_strategies,
    explain_zero,
)
from lessons.ddp_fsdp.tables import (
    accumulation,
    differences,
    equality,
    features,
    holdings,
    ladder,
    memory,
    per_sample,
    printed_differences,
    printed_per_sample,
    printed_runs,
    sent,
    symptoms,
    throughput,
    zero,
)

_MACHINES = ("h200x2", "h200x4")
_ON_TWO = ("trial", "asreported", "accumulation", "zero1", "zero2", "zero3", "zero3_zero")
# The reports train on four GPUs. The host of the recorded machine with four starts kernels more slowly than its GPUs
# compute batch 16 and the knobs' last steps: there these runs show the host, and those on two GPUs teach more.
RECORDED = Recordings(
    "ddp_fsdp",
    4,
    {"strategies": _MACHINES, "knobs": _MACHINES, **dict.fromkeys(_ON_TWO, _MACHINES[:1])},
    own_gpus={"strategies": 2, "knobs": 2},
)
