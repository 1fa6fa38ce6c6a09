"""Lab 04, ddp_fsdp: BERT replicated or sharded; what does a rank hold, what does it send, and what does that cost?"""

from labkit.labs import front_door

RECORDED = {name: f"h200x2/ddp_fsdp/{name}" for name in ("strategies", "knobs", "trial", "zero")}

__getattr__, __all__ = front_door(
    __name__,
    plan=["Knobs", "Strategies", "Trial", "Zero", "installed"],
    tables=[
        "differences",
        "equality",
        "features",
        "holdings",
        "ladder",
        "memory",
        "physics",
        "printed_differences",
        "samples_per_gpu",
        "savings",
        "scorecard",
        "sent",
        "symptoms",
        "throughput",
        "traffic",
        "wrappings",
        "zero",
    ],
    charts=["differences_chart", "ledger_chart", "strategies_chart", "waterfall_chart", "zero_chart"],
    story=[
        "doubt_reports",
        "explain_equality",
        "explain_knobs",
        "explain_memory",
        "explain_sent",
        "explain_strategies",
        "explain_zero",
    ],
    checks=["check", "diagnose", "suspects"],
)
