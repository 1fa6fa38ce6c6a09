"""Lab 08, attention: must a GPU ever write down N² scores, and how fast can it be if it does not?"""

from labkit.labs import front_door

RECORDED = {name: f"h200/attention/{name}" for name in ("memory", "errors", "tuning", "race", "trial")}
RECORDED |= {name: f"h100/attention/{name}" for name in ("plain", "sweep")}  # on the GPU that the reports timed, too

__getattr__, __all__ = front_door(
    __name__,
    plan=["Errors", "Memory", "Plain", "Race", "Sweep", "Trial", "Tuning"],
    tables=[
        "errors",
        "everything",
        "floor",
        "held",
        "limit",
        "plain",
        "race",
        "scorecard",
        "sweep",
        "tiles",
    ],
    charts=[
        "attention_chart",
        "memory_chart",
        "plain_chart",
        "race_chart",
        "sweep_chart",
        "tiles_chart",
    ],
    story=[
        "doubt_reports",
        "explain_errors",
        "explain_memory",
        "explain_plain",
        "explain_race",
        "explain_sweep",
    ],
    checks=["check", "diagnose", "suspects"],
    explorer=["explore"],
    **{"theory.tiles": ["example", "tiled"]},
)
