"""Lab 12, accounting: does it fit, and is it compute-bound? Pen, paper and exact units, before anything runs."""

from labkit.labs import front_door

__getattr__, __all__ = front_door(
    __name__,
    tables=[
        "answers",
        "bounds",
        "drivers",
        "fit",
        "knobs",
        "labels",
        "machines",
        "measured",
        "mistakes",
        "over_devices",
        "over_tokens",
        "parts",
        "scorecard",
        "splits",
    ],
    charts=[
        "batch_chart",
        "devices_chart",
        "fit_chart",
        "machines_chart",
        "measured_chart",
        "parts_chart",
        "published_chart",
        "splits_chart",
    ],
    story=[
        "doubt_report",
        "explain_batch",
        "explain_fit",
        "explain_knobs",
        "explain_measured",
        "explain_memory",
    ],
    checks=["accounts", "check", "diagnose", "suspects"],
    explorer=["explore"],
    **{"theory.models": ["XXL", "Model"], "theory.speed": ["Mesh"]},
)
