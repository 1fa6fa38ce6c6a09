"""Draws the README's charts from the recorded runs: `python -m labkit.tools.gallery`."""

from __future__ import annotations

from labkit.engine.run import replay
from labkit.repository import RECORDED
from lessons import broadcast, ddp_fsdp, pipeline


def main() -> None:
    """Write one PNG a chart into data/recorded/charts."""
    sweep, schedules = replay(broadcast.RECORDED), replay(pipeline.RECORDED["schedules"])
    table = broadcast.methods(sweep)
    charts = {
        "broadcast_methods": broadcast.methods_chart(table),
        "broadcast_timeline": broadcast.timeline_chart(
            broadcast.timeline(sweep, "pipelined"), broadcast.timeline(sweep, "scatter_all_gather")
        ),
        "pipeline_timeline": pipeline.gantt_chart(*pipeline.gantt(schedules, schedule="1f1b")),
        "memory_ledger": ddp_fsdp.ledger_chart(ddp_fsdp.memory(replay(ddp_fsdp.RECORDED["strategies"]))),
    }
    folder = RECORDED / "charts"
    folder.mkdir(exist_ok=True)
    for name, figure in charts.items():
        figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
