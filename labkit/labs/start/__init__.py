"""Lab 00, start: this machine, and how a run works."""

from labkit.labs import front_door

RECORDED = "h200x4/start/hello"
COST = "h200x4/start/launchcost"

__getattr__, __all__ = front_door(
    __name__,
    plan=["BertStep", "Failure", "Hello", "LaunchCost"],
    tables=["best_times", "launch_costs", "launch_scorecard", "ranks", "scorecard", "startup", "sums"],
    faults=["cause", "failures"],
    charts=["best_chart", "cost_chart", "startup_chart", "sums_chart", "wall_drawing"],
    story=[
        "explain_cost",
        "explain_failure",
        "explain_left",
        "explain_ranks",
        "explain_size",
        "explain_startup",
        "show_error",
    ],
)
