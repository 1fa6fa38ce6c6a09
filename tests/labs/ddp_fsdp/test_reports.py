"""The published DDP and FSDP figures: what the tables re-compute, and that each doubt is said where it holds only."""

import pandas as pd
import pytest

from labkit.labs.ddp_fsdp.story.reports import doubt_reports
from labkit.labs.ddp_fsdp.tables.reading import (
    flop_per_sample,
    physics,
    printed_differences,
    samples_per_gpu,
    savings,
    traffic,
)
from labkit.tables.published import published

TABLES = {
    "differences": printed_differences,
    "samples": samples_per_gpu,
    "savings": savings,
    "traffic": traffic,
    "physics": physics,
}


@pytest.fixture
def printed():
    return published("ddp_fsdp")


def changed(printed, report="eml3-8xh100", **columns):
    """Give the printed table with columns of one report changed by functions of its rows."""
    made = printed.copy()
    rows = made["report"] == report
    for name, change in columns.items():
        made.loc[rows, name] = change(made[rows])
    return made


def story(printed, **tables):
    made = {name: table(printed) for name, table in TABLES.items()}
    return doubt_reports(**made | tables).data


def test_tables_are_tidy_and_name_their_source(printed):
    for table in TABLES.values():
        made = table(printed)
        assert made.attrs["source"] == published("ddp_fsdp").attrs["source"]
        assert 3 <= len(made) <= 10
        assert list(made.index) == list(range(len(made)))


def test_differences_are_resolved_by_their_spreads(printed):
    table = printed_differences(printed)
    assert table["difference"].tolist() == pytest.approx([-0.002105, -0.07394, -0.00726], rel=1e-3)
    assert table["standard_errors"].tolist() == pytest.approx([9.22, 1.21, 3.11], abs=0.01)
    assert table["resolved"].tolist() == [True, False, True]


def test_a_batch_is_told_by_time_and_by_memory(printed):
    table = samples_per_gpu(printed)
    assert table["fits"].tolist() == ["together"] * 2 + ["each"] * 4
    other = table[(table["report"] == "eml3-8xh100") & (table["strategy"] == "ddp")]
    assert other["printed_per_gpu"].tolist() == [16, 4]
    assert other["implied_per_gpu"].tolist() == pytest.approx([59.75, 16.11], abs=0.01)
    assert other["each_samples_per_second"].tolist() == pytest.approx([444.7, 412.3], abs=0.1)
    assert other["each_mb_per_sample"].tolist() == pytest.approx([570.15] * 2, abs=0.01)
    assert other["together_mb_per_sample"].tolist() == pytest.approx([2280.6] * 2, abs=0.1)
    assert other["states_bytes_per_parameter"].tolist() == pytest.approx([16.65] * 2, abs=0.01)
    assert other["reference_mb_per_sample"].iloc[0] == pytest.approx(574.6, abs=0.1)


def shared(printed):
    """Give the other report as it would be if its GPUs had shared the batch: a quarter of the time and activations."""
    states = {"ddp": 16 * 109_483_778 / 2**20, "fsdp_full": 4 * 109_483_778 / 2**20}
    return changed(
        printed.assign(unit="MB"),
        step_seconds=lambda rows: rows["step_seconds"] / 4,
        samples_per_second=lambda rows: rows["samples_per_second"] * 4,
        peak=lambda rows: rows["strategy"].map(states) + 548 * rows["global_batch"] / 4,
        peak_std=lambda rows: 1.0,
    )


def test_a_batch_needs_time_and_memory_alike(printed):
    assert set(samples_per_gpu(shared(printed))["fits"]) == {"together"}
    slow = changed(printed, step_seconds=lambda rows: 2 * rows["step_seconds"])
    assert samples_per_gpu(slow)["fits"].tolist() == ["together"] * 2 + ["neither"] * 4
    heavy = changed(printed, peak=lambda rows: 3 * rows["peak"])
    assert samples_per_gpu(heavy)["fits"].tolist() == ["together"] * 2 + ["neither"] * 4


def test_savings_are_held_against_what_sharding_can(printed):
    table = savings(printed)
    assert table["saving_mib"].tolist() == pytest.approx([732.8, 731.0, 732.9], abs=0.1)
    assert table["saving"].tolist() == pytest.approx([0.0702, 0.0200, 0.0702], abs=1e-4)
    assert table["most_mib"].tolist() == pytest.approx([0.75 * 16 * 109_483_778 / 2**20] * 3)
    assert table["share_of_most"].tolist() == pytest.approx([0.585, 0.583, 0.585], abs=1e-3)
    assert table["standard_error_mib"].tolist() == pytest.approx([98.47] * 3, abs=0.01)


def test_traffic_is_a_rings(printed):
    table = traffic(printed)
    sent = table.iloc[0]
    assert sent["sent_mb"] == pytest.approx(1.5 * 4 * 109_483_778 / 1e6, rel=1e-4)
    assert sent["least_ms"] == pytest.approx(1.374, abs=1e-3)
    assert sent["share_of_step"] == pytest.approx(0.00891, abs=1e-5)
    assert table["sent_mb"].gt(sent["sent_mb"]).tolist() == (table["strategy"] == "fsdp_full").tolist()


def test_physics_checks_both_readings(printed):
    assert flop_per_sample() == pytest.approx(289.9e9, rel=1e-3)
    table = physics(printed).set_index(["report", "global_batch", "reading"])
    assert table["tflops"].tolist() == pytest.approx([30.09, 120.36, 7.47, 29.88, 8.06, 32.23], abs=0.01)
    assert table.index[table["verdict"] == "impossible"].tolist() == [("eml3-4xh100", 64, "each")]


def test_every_doubt_is_said(printed):
    said = story(printed)
    assert len(said.splitlines()) == 5
    for part in (
        "reaches 30.1 TFLOP/s in eml3-4xh100 and 7.47 in eml3-8xh100",
        '"batch" hardly means the same',
        "eml3-4xh100's step with all 64 on each GPU is impossible in float32: 120 of 67.0 TFLOP/s",
        "eml3-8xh100 has 16 and 4 samples a GPU; its steps take the time of 60 and 16 in eml3-4xh100",
        "570 MB if each GPU had the whole batch, 2 281 MB if not; in eml3-4xh100 it is 575 MB",
        "DDP processed 445 and 412 samples/s, not 111 and 103",
        "Resolved: FSDP is 0.21 % slower in eml3-4xh100 at 64 (9.2 standard errors) and 0.73 % slower",
        "**Not resolved**: 7.4 % slower in eml3-8xh100 at 64",
        "Three seeds on one machine and day tell nothing of another.",
        "**does not follow**: in a ring each GPU sends 657 MB a step",
        "at least 1.37 ms or 0.89 % of the step: little, not nothing. FSDP, block by block, sends 1.4× as much.",
        "FSDP saves 731 to 733 MiB, 58 % of what sharding could (1 253 MiB)",
        "2.0 % of one peak and 7.0 % of another **tells of the batch, not of sharding**",
    ):
        assert part in said, said


def test_a_batch_that_was_shared_is_believed(printed):
    said = story(shared(printed))
    assert "all steps use a GPU alike: 29.9 to 32.2 TFLOP/s." in said
    assert "eml3-8xh100's steps have the time and the memory of its batch shared by 4 GPUs." in said
    assert "hardly means" not in said
    assert "each GPU's" not in said


@pytest.mark.parametrize("slower", [{"ddp": 2, "fsdp_full": 2}, {"ddp": 1, "fsdp_full": 2}])
@pytest.mark.parametrize("report", [pd.DataFrame.copy, shared])
def test_a_batch_that_does_not_fit_in_every_row_is_left_open(printed, report, slower):
    slow = changed(report(printed), step_seconds=lambda rows: rows["step_seconds"] * rows["strategy"].map(slower))
    said = story(slow)
    assert "fit neither its batch shared by the GPUs nor all of it on each" in said
    assert "each GPU's" not in said
    assert "have the time" not in said


def test_steps_faster_than_the_gpu_are_called_impossible(printed):
    said = story(changed(printed, "eml3-4xh100", step_seconds=lambda rows: rows["step_seconds"] / 4))
    assert "eml3-4xh100's step as printed is impossible in float32: 120 of 67.0 TFLOP/s" in said


@pytest.mark.parametrize(
    ("std", "part", "unsaid"),
    [
        (0.0001, "7.4 % slower", "Not resolved"),
        (1000.0, "No difference between FSDP and DDP is resolved: FSDP is 0.21 % slower", "Three seeds"),
    ],
)
def test_spreads_decide_what_is_resolved(printed, std, part, unsaid):
    said = story(printed, differences=printed_differences(printed.assign(samples_per_second_std=std)))
    assert part in said
    assert unsaid not in said


def test_a_faster_fsdp_is_called_faster(printed):
    faster = printed["samples_per_second"].where(printed["strategy"] == "ddp", 500.0)
    assert "FSDP is 20 % faster" in story(
        printed, differences=printed_differences(printed.assign(samples_per_second=faster))
    )


def test_the_claim_of_no_communication_holds_on_one_gpu_and_weighs_in_a_short_step(printed):
    alone = traffic(printed[printed["rank"] == 0].set_axis(range(6)).pipe(sourced, printed))
    said = story(printed, traffic=alone)
    assert '"No inter-GPU communication" in DDP holds' in said
    assert "does not follow" not in said
    short = story(printed, traffic=traffic(printed.assign(step_seconds=0.01)))
    assert "14 % of the step: **not even little.**" in short
    ddp = traffic(printed)
    assert "block by block" not in story(printed, traffic=ddp[ddp["strategy"] == "ddp"])


def sourced(table: pd.DataFrame, printed: pd.DataFrame) -> pd.DataFrame:
    table.attrs = dict(printed.attrs)
    return table


def test_savings_beyond_sharding_unresolved_or_uneven(printed):
    sharded = printed["strategy"] == "fsdp_full"
    less = changed(printed, peak=lambda rows: rows["peak"] - 2**30 * sharded[rows.index])
    said = story(printed, savings=savings(less))
    assert "**eml3-8xh100 at 64 saves 1 755 MiB, more than sharding can** (1 253 MiB)" in said
    assert "FSDP saves" not in said
    wide = story(printed, savings=savings(changed(printed, peak_std=lambda rows: float(2**30))))
    assert "That FSDP saves memory is not resolved in every case." in wide
    uneven = changed(
        printed, peak=lambda rows: rows["peak"] - 2**28 * (sharded[rows.index] & (rows["global_batch"] == 16))
    )
    assert "tells of the batch" not in story(printed, savings=savings(uneven))
