"""Lab 03, pipeline: BERT over several GPUs; where does the time go in which no stage works, and who fills it?"""

from labkit.labs import front_door

RECORDED = {
    name: f"h200x4/pipeline/{name}"
    for name in ("gpus", "layers", "microbatches", "precisions", "schedules", "splits", "trial")
}

__getattr__, __all__ = front_door(
    __name__,
    plan=["Gpus", "Layers", "MicroBatches", "Precisions", "Schedules", "Splits", "Trial"],
    tables=[
        "absolute",
        "balance",
        "best",
        "claims",
        "equality",
        "gantt",
        "ideal",
        "isolated",
        "memory",
        "parts",
        "precisions",
        "predictions",
        "scorecard",
        "speedups",
        "split_forecast",
        "split_sums",
        "splits_ranked",
        "symptoms",
        "throughput",
    ],
    charts=[
        "bubble_chart",
        "gantt_chart",
        "gpus_chart",
        "memory_chart",
        "micro_batch_curve",
        "schedules_chart",
        "splits_chart",
    ],
    story=[
        "doubt_reports",
        "explain_bubbles",
        "explain_equality",
        "explain_gpus",
        "explain_micro_batches",
        "explain_precisions",
        "explain_splits",
    ],
    checks=["check", "diagnose", "suspects"],
    explorer=["explore"],
)
