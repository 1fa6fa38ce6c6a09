"""The runs that are recorded on four GPUs: whole, of their plans, and with a verdict for every goal of four GPUs."""

import pandas as pd
import pytest
from scorecard import scorecard

from labkit.engine.recordings import Recordings, replay
from labkit.repository import RECORDED
from labkit.tables.goals import OPEN, scorecard_of
from labkit.tables.measures import measures_of
from lessons import collectives, ddp_from_scratch, ddp_fsdp, optimizer_sharding, sharding

LABS = (collectives, ddp_fsdp, ddp_from_scratch, optimizer_sharding, sharding)


def cards(lab):
    """Return the verdicts of all recorded runs of a lab, as text, by goal."""
    table = pd.concat(scorecard_of(replay(path)) for path in lab.RECORDED.all())
    assert not table["figure"].duplicated().any(), "one goal, one figure"
    return table.set_index("figure")["met"].map(str)


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.__name__)
def test_every_recording_is_a_finished_run_of_its_plan(lab):
    assert isinstance(lab.RECORDED, Recordings)
    for path in lab.RECORDED.all():
        machine, name = path.split("/")[:2]
        run = replay(path)
        assert (name, run.status["state"]) == (run.plan.lab, "finished"), path
        assert run.plan.device == "cpu" or len(run.node.gpus) == int(machine.partition("x")[2] or 1), path
        assert set(run.rows["status"]) <= {"ok", "out of memory"}, path


def test_a_lesson_reads_the_count_of_its_reports_unless_the_lab_says_why_not():
    assert {collectives.RECORDED[name] for name in ("sweep", "ring", "nccltests")} == {
        f"h200x4/collectives/{name}" for name in ("sweep", "ring", "nccltests")
    }, "the reports have 2 to 6 processes"
    for lab in (sharding, ddp_from_scratch, optimizer_sharding, ddp_fsdp):
        assert all(path.startswith(("h200x2/", "h200/")) for path in lab.RECORDED.values()), lab.__name__
    assert sharding.RECORDED.nearest("links", gpus=8) == "h200x4/sharding/links"


@pytest.mark.slow
def test_no_goal_of_four_gpus_is_without_a_run():
    table = scorecard()
    assert list(table.columns) == ["lab", "figure", "measured", "goal", "unit", "met", "machine", "run", "reason"]
    assert table.loc[table["measured"].notna(), "run"].map(lambda name: (RECORDED / name / "plan.json").exists()).all()
    listed = set(table.loc[table["lab"] == "broadcast", "figure"])
    assert listed == {measure.name for measure in measures_of("broadcast") if measure.comparison}
    four = table[table["figure"].str.contains("4 GPUs")]
    assert len(four) >= 20 and four["measured"].notna().all(), four[four["measured"].isna()]
    for lab in ("ddp_fsdp", "sharding"):
        expected = {one.name for one in measures_of(lab) if one.comparison and "4 GPUs" in one.name}
        assert expected and expected <= set(four["figure"])
    missed = table[table["met"].isin([False])]
    assert len(missed) >= 10 and missed["reason"].str.len().min() > 10, "each miss says what is known of it"
    assert not table[table["met"].isin([True])]["reason"].any()


def test_verdicts_on_four_gpus():
    met = cards(ddp_fsdp)
    assert met["DDP, float32, batch 64, 4 GPUs"] == "True"
    assert met["DDP's rate ÷ rate alone, 4 GPUs, batch 64"] == "True"
    host_bound = {
        "DDP's rate ÷ rate alone, 4 GPUs, batch 16",
        "fastest setting ÷ first (float32, unfused AdamW), 4 GPUs",
    }
    assert {figure for figure, verdict in met.items() if verdict == "False"} == host_bound
    met = cards(sharding)
    assert {met[f"{name}: one GPU's rate kept on 4 GPUs"] for name in ("DDP", "FSDP, full")} == {OPEN}
    met = cards(ddp_from_scratch)
    assert met["bucketed's step over torch's DDP's, 4 GPUs"] == OPEN
    assert met["step of the best size over torch's DDP's, 4 GPUs"] == "True"
    for lab, goals in ((collectives, 6), (optimizer_sharding, 3)):
        four = {figure: verdict for figure, verdict in cards(lab).items() if "4 GPUs" in figure}
        assert set(four.values()) <= {"True", OPEN} and len(four) == goals, lab.__name__


def test_ledgers_hold_on_four_gpus():
    for lab, name in ((ddp_fsdp, "strategies"), (sharding, "strategies"), (optimizer_sharding, "memory")):
        run = replay(lab.RECORDED.nearest(name, gpus=4))
        assert run.plan.gpus == 4
        assert lab.memory(run)["unexplained_share"].abs().max() < 0.1
        assert lab.sent(run)["equal"].all()


def test_a_slow_host_hides_what_the_knobs_of_four_gpus_bring():
    four, two = (ddp_fsdp.ladder(replay(ddp_fsdp.RECORDED.nearest("knobs", gpus=count))) for count in (4, 2))
    of_four, of_two = (table.set_index("knob")["times_previous"] for table in (four, two))
    assert of_four["bfloat16 autocast"] < 1.05 < 1.2 < of_two["bfloat16 autocast"]


def test_the_projection_beside_four_gpus():
    projected = sharding.projection(
        *(replay(sharding.RECORDED.nearest(name, gpus=8)) for name in ("links", "strategies"))
    )
    measured = projected.dropna(subset="measured_tokens_per_s")
    assert set(measured["gpus"]) == {2, 4} and (measured.query("strategy == 'ddp'")["error"] > 0.02).all()
