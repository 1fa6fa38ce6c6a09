"""Lab 01, topology: how the GPUs are wired to each other and to the host, as printed, as nominal, as measured."""

from labkit.labs import front_door

RECORDED = "h200x4/topology/copies"

__getattr__, __all__ = front_door(
    __name__,
    plan=["Copies"],
    tables=[
        "claims",
        "compare",
        "copy_matrix",
        "devices",
        "host_links",
        "host_summary",
        "link_rate",
        "nominal",
        "numa_effect",
        "scorecard",
    ],
    charts=["compare_chart", "copy_heatmap", "host_chart", "node_map", "share_chart"],
    story=["doubt_sockets", "explain_host", "explain_matrix", "explain_numa", "explain_placement"],
)
