"""Lab 04's charts: each draws, says its units and source, and no text hides another or leaves it."""

import pytest
from figures import checked
from made_ddp_fsdp import knobs_run, strategies_run

from labkit.course.predictions import Prediction
from labkit.engine.recordings import replay
from lessons import ddp_fsdp

PANELS = [["small", "full"], ["full", "recorded"], ["eight", "full"], ["one", "recorded"], ["failed"]]


def labels(figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    small = {"device": "cpu", "gpus": 2, "size": "small", "batches": (16, 8)}
    small |= {"layers": 4, "hidden": 128, "heads": 2, "vocabulary": 1000, "sequence": 64}
    return {
        "full": strategies_run(folder / "full"),
        "recorded": replay(strategies_run(folder / "recorded", step_ms={"ddp": 101.0}).folder),
        "small": strategies_run(folder / "small", **small),
        "one": strategies_run(folder / "one", strategies=("ddp",)),
        "failed": strategies_run(folder / "failed", failed=("fsdp_root",)),
        "eight": strategies_run(folder / "eight", gpus=8, batches=(64,)),
    }


@pytest.mark.parametrize("names", PANELS, ids=" ".join)
def test_ledger_chart(runs, names):
    tables = [ddp_fsdp.memory(runs[name]) for name in names]
    figure = checked(ddp_fsdp.ledger_chart(*tables, guess=Prediction("?", "GiB", 4.0)))
    assert "your prediction" in labels(figure)
    assert ("recorded peak" in labels(figure)) == (names[-1] == "recorded")
    assert figure.axes[-1].lines[0].get_xdata()[0] == 4.0
    assert not ddp_fsdp.ledger_chart(*tables, guess=Prediction("?", "GiB")).axes[-1].lines


@pytest.mark.parametrize("names", PANELS, ids=" ".join)
def test_strategies_chart(runs, names):
    tables = [ddp_fsdp.compared(runs[name]) for name in names]
    figure = checked(ddp_fsdp.strategies_chart(*tables, published=ddp_fsdp.printed_runs()))
    ax = figure.axes[0]
    notes = [text.get_text() for text in ax.texts]
    assert notes.count("out of memory") == (2 if names == ["failed"] else 0)
    if names == ["full", "recorded"]:
        assert "640  ▲ 415  ▼ 111" in notes and "634 (within noise)  ▲ 414  ▼ 103" in notes, "this run comes first"
        assert "recorded run" in labels(figure)
    assert len(figure.axes) == (2 if "recorded" not in names and len(names) == 2 else 1)


@pytest.mark.parametrize("failed", [(), ("TF32",), ("float32, unfused AdamW",), ("bfloat16 autocast", "torch.compile")])
def test_knobs_chart(tmp_path, failed):
    table = ddp_fsdp.ladder(knobs_run(tmp_path / "run", failed=failed))
    figure = checked(ddp_fsdp.knobs_chart(table))
    assert sum("out of memory" in text.get_text() for text in figure.axes[0].texts) == len(failed)
    two = ddp_fsdp.ladder(knobs_run(tmp_path / "two", (30, 31), steps=tuple(table["knob"][:2]), size="small"))
    both = checked(ddp_fsdp.knobs_chart(two, table))
    assert both.axes[0].texts[1].get_text() == "31.0 (1.0×)", "this run comes first"
