"""Lab 02, broadcast: one host tensor to every GPU; which part of the speed is the path, which is the memory?"""

from labkit.labs import front_door

RECORDED = "h200x4/broadcast/sweep"

__getattr__, __all__ = front_door(
    __name__,
    plan=["Sweep", "Trial"],
    tables=[
        "ablation",
        "best",
        "chunk_sweep",
        "compare",
        "ladder",
        "methods",
        "overlap",
        "scorecard",
        "symptoms",
        "theory",
        "timeline",
    ],
    charts=["ablation_chart", "chunk_curve", "compare_chart", "methods_chart", "paths_drawing", "timeline_chart"],
    story=[
        "doubt_ladder",
        "explain_chunks",
        "explain_methods",
        "explain_overlap",
        "explain_pinning",
    ],
    checks=["check", "diagnose", "suspects"],
)
