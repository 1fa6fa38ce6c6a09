"""Real launches on two processes: every pipeline computes what the whole model does, and its spans are in order."""

import pytest

from labkit.launching import launch
from labkit.provenance import fact
from lessons import pipeline
from lessons.pipeline.exercises import judge_run, verdict_of
from lessons.pipeline.plan import BY_HAND, KEPT, SCHEDULES, VARIANTS
from lessons.pipeline.tables.timeline import measured_steps, order_for

TINY = {"hidden": 32, "heads": 2, "sequence": 8, "batch": 12, "repeats": 1, "vocabulary": 50}


@pytest.mark.slow
def test_every_schedule_split_and_count_equals_the_whole_model():
    one_stage = pipeline.Trial.small(
        **TINY, schedules=("gpipe", "1f1b", "zero_bubble"), splits=("2-2", "3-1", "1-3"), counts=(2, 3)
    )
    table = pipeline.equality(launch(one_stage, progress=False))
    assert len(table) == 18
    assert table["equal"].all(), table
    several = pipeline.Trial.small(**TINY, schedules=("interleaved",), splits=("1-1-1-1",), counts=(2, 3, 6))
    table = pipeline.equality(launch(several, progress=False))
    assert table["equal"].all(), table


@pytest.mark.slow
def test_three_ranks_and_an_uneven_interleaving():
    knobs = TINY | {"gpus": 3, "layers": 7}
    plan = pipeline.Trial.small(**knobs, schedules=("gpipe", "1f1b"), splits=("4-2-1",), counts=(3,))
    assert pipeline.equality(launch(plan, progress=False))["equal"].all()
    knobs |= {"gpus": 2, "layers": 6}
    plan = pipeline.Trial.small(**knobs, schedules=("interleaved",), splits=("2-1-1-2",), counts=(4,))
    assert pipeline.equality(launch(plan, progress=False))["equal"].all()


def test_each_bug_is_named_and_the_right_one_is_right():
    run = launch(pipeline.Trial.small(variants=VARIANTS, counts=(2,), repeats=5), progress=False)
    assert pipeline.equality(run).set_index("variant")["equal"][["right", BY_HAND]].all()
    found = {row["variant"]: set(verdict_of(row).faults) for row in pipeline.symptoms(run).to_dict("records")}
    assert found.pop("right") == found.pop(BY_HAND) == set()
    assert found == {name: {name} for name in found}


def test_spans_follow_our_own_lists():
    """What torch ran, step by step, is what our schedules list: on every rank, for every schedule."""
    run = launch(pipeline.Schedules.small(**TINY, counts=(4,)), progress=False)
    for schedule in SCHEDULES:
        (knobs,) = [vars(point) for point in run.plan.points() if point.schedule == schedule]
        for spans in measured_steps(run, schedule=schedule):
            for rank, steps in enumerate(order_for(knobs)):
                own = [s for s in sorted(spans, key=lambda s: s.start) if s.rank == rank and s.kind in "FBIW"]
                assert [(s.kind, s.stage, s.micro_batch) for s in own] == [tuple(step) for step in steps]
    table = pipeline.predictions(run)
    assert (table["in_flight"] == table["in_flight_simulated"]).all()
    assert run.rows["loss"].notna().any()


def test_streams_fences_and_one_rank():
    run = launch(pipeline.Gpus.small(**TINY, micro_batches=3), progress=False)
    table = pipeline.throughput(run)
    assert set(table["mode"]) == {"streaming", "fenced", "training"}
    assert (table["samples_per_s"] > 0).all()
    assert pipeline.memory(run).empty
    assert table[table["mode"] == "streaming"]["count"].tolist() == [run.plan.stream] * 2
    measured, simulated = pipeline.gantt(run, mode="streaming", ranks=2)
    forwards = measured[(measured["kind"] == "F") & (measured["rank"] == 1)]
    assert forwards["micro_batch"].tolist() == list(range(3 * 4)), "four steps, numbered through"
    assert fact(simulated, "length_ms") > 0


@pytest.mark.slow
def test_two_ranks_with_kept_activations():
    plan = pipeline.MicroBatches.small(**TINY, ranks=2, counts=(2,), modes=("fenced", KEPT))
    table = pipeline.throughput(launch(plan, progress=False))
    assert table["mode"].tolist() == ["fenced", "kept"]
    assert (table["samples_per_s"] > 0).all()


@pytest.mark.slow
def test_dropout_changes_the_loss_and_plain_attention_does_not():
    run = launch(pipeline.AsReported.small(**TINY, modes=(KEPT, "training")), progress=False)
    table = pipeline.as_reported(run)
    assert len(table) == 2 * 2 * 2 and (table["samples_per_s"] > 0).all()
    assert table["mib_per_gpu"].isna().all(), "a process's memory is mostly Python"
    trained = run.rows[run.rows["mode"] == "training"].dropna(subset="loss")
    loss = trained.set_index(["attention", "dropout", "iteration"])["loss"].unstack()
    assert loss.loc["plain", 0.0].to_numpy() == pytest.approx(loss.loc["fused", 0.0].to_numpy(), abs=1e-6)
    for attention in ("fused", "plain"):
        changed = (loss.loc[attention, 0.1] - loss.loc[attention, 0.0]).abs()
        assert changed.max() > 1e-6, "masks are drawn anew each time: only rounding is smaller"
    measured, _ = pipeline.gantt(run, mode="training", attention="plain", dropout=0.1)
    assert len(measured[measured["kind"] == "F"]) == 2 * 4, "the spans of one setting, not of all"


YOURS = """
def one_f_one_b(rank, ranks, micro_batches):
    steps, ahead = [], ranks - 1 - rank
    for i in range(micro_batches + ahead):
        steps += [f"F{i}"] * (i < micro_batches) + [f"B{i - ahead}"] * (i >= ahead)
    return steps
"""


def test_the_loop_runs_1f1b_and_yours_with_the_gradients_of_the_whole_model(tmp_path):
    (file := tmp_path / "pipeline_one_f_one_b.py").write_text(YOURS)
    knobs = TINY | {"gpus": 3, "layers": 3, "variants": (BY_HAND,), "counts": (6,), "yours": str(file)}
    run = launch(pipeline.Trial.small(**knobs, by_hand=("gpipe", "1f1b", "yours")), progress=False)
    assert pipeline.equality(run)["equal"].tolist() == [True] * 3
    assert "whole model" in judge_run(run).merits[0]
    file.write_text(YOURS.replace('f"F{i}"', 'f"F{i ^ 1 if rank == 0 else i}"'))
    run = launch(pipeline.Trial.small(**knobs, by_hand=("yours",)), progress=False)
    assert [*judge_run(run).faults] == ["wrong_order"]


def test_yours_is_measured_beside_torchs_and_rank_0_keeps_as_many(tmp_path):
    (file := tmp_path / "pipeline_one_f_one_b.py").write_text(YOURS)
    run = launch(pipeline.Schedules.small(**TINY, schedules=("1f1b",), yours=str(file)), progress=False)
    (merit,) = judge_run(run).merits
    assert "with your lists" in merit and merit.endswith("rank 0 keeps 2 and 2 micro-batches")
    measured = pipeline.gantt(run, schedule="yours")[0]
    own = measured[measured["kind"].isin(["F", "B"]) & (measured["rank"] == 0)]
    assert [*own["kind"] + own["micro_batch"].astype(str)] == ["F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3"]
