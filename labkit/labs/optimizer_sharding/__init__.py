"""Lab 11, optimizer_sharding: N replicas keep the same optimizer states N times; what if each keeps a share?"""

from labkit.labs import front_door

RECORDED = {name: f"h200x2/optimizer_sharding/{name}" for name in ("memory", "steps", "buckets", "equality", "trial")}

__getattr__, __all__ = front_door(
    __name__,
    plan=["Buckets", "Equality", "Memory", "Steps", "Trial"],
    tables=[
        "balance",
        "buckets",
        "by_ranks",
        "equality",
        "memory",
        "owned",
        "read_report",
        "saving",
        "scorecard",
        "sent",
        "stages",
        "steps",
        "symptoms",
    ],
    charts=["balance_chart", "buckets_chart", "memory_chart", "report_chart", "stages_chart", "steps_chart"],
    story=[
        "doubt_report",
        "explain_balance",
        "explain_buckets",
        "explain_equality",
        "explain_memory",
        "explain_stages",
        "explain_steps",
    ],
    checks=["check", "diagnose", "suspects"],
    explorer=["explore"],
)
