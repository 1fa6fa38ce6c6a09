"""Lab 09, collectives: what does moving bytes between GPUs cost, and when is it latency, when bandwidth?"""

from labkit.labs import front_door

RECORDED = {name: f"h200x2/collectives/{name}" for name in ("sweep", "growth", "nccltests", "ring", "trial")}

__getattr__, __all__ = front_door(
    __name__,
    plan=["NcclTests", "Ring", "Sweep", "Trial"],
    tables=[
        "against",
        "bandwidths",
        "candidates",
        "caught",
        "fits",
        "published_bandwidth",
        "published_fits",
        "published_times",
        "residuals",
        "rings",
        "scorecard",
        "symptoms",
    ],
    charts=[
        "against_chart",
        "bandwidth_chart",
        "growth_chart",
        "overview_chart",
        "published_chart",
        "ring_chart",
        "time_chart",
    ],
    story=[
        "doubt_reports",
        "explain_against",
        "explain_backends",
        "explain_bandwidth",
        "explain_fit",
        "explain_growth",
        "explain_latency",
        "explain_ring",
    ],
    checks=["check", "diagnose", "suspects"],
    explorer=["explore"],
    **{"theory.steps": ["ring"]},
)
