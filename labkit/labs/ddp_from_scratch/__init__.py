"""Lab 10, ddp_from_scratch: four ways to average gradients; how much of the sending can the backward hide?"""

from labkit.labs import front_door

RECORDED = {
    name: f"h200x2/ddp_from_scratch/{name}" for name in ("implementations", "buckets", "profiles", "equality", "trial")
}

__getattr__, __all__ = front_door(
    __name__,
    plan=["Buckets", "Equality", "Implementations", "Profiles", "Trial"],
    tables=[
        "buckets",
        "cases",
        "curve",
        "equality",
        "implementations",
        "overhead",
        "overlap",
        "profile",
        "scorecard",
        "sending",
        "symptoms",
        "trace_spans",
    ],
    charts=[
        "breakdown_chart",
        "buckets_chart",
        "flights_chart",
        "published_chart",
        "steps_chart",
        "trace_chart",
    ],
    story=["doubt_reports", "explain_buckets", "explain_equality", "explain_overlap", "explain_steps"],
    checks=["check", "diagnose", "suspects"],
    explorer=["explore"],
    **{"tables.reading": ["everything"]},
)
