"""Lab 05, sharding: GPT-2 Large four ways; which bytes are held, which are sent, and what is hidden behind what?"""

from labkit.labs import front_door

RECORDED = {
    name: f"h200x2/sharding/{name}"
    for name in ("accumulation", "batches", "ladder", "links", "profiles", "strategies", "timeline", "trial")
}

__getattr__, __all__ = front_door(
    __name__,
    plan=[
        "Accumulation",
        "Batches",
        "Ladder",
        "Links",
        "Profiles",
        "Strategies",
        "Timeline",
        "Trial",
    ],
    tables=[
        "accumulation",
        "batches",
        "equality",
        "fits",
        "ladder",
        "links",
        "memory",
        "memory_timeline",
        "operators",
        "overlap",
        "profile",
        "projection",
        "reading",
        "scorecard",
        "segments",
        "sent",
        "strategies",
        "symptoms",
        "trace_spans",
    ],
    charts=[
        "batches_chart",
        "breakdown_chart",
        "links_chart",
        "projection_chart",
        "scaling_chart",
        "segments_chart",
        "timeline_chart",
        "trace_chart",
        "waterfall_chart",
    ],
    story=[
        "doubt_report",
        "explain_accumulation",
        "explain_equality",
        "explain_ledgers",
        "explain_links",
        "explain_overlap",
        "explain_projection",
        "explain_scaling",
        "explain_speed",
    ],
    checks=["check", "diagnose", "suspects"],
    explorer=["explore"],
)
