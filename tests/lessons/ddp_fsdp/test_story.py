"""Each verdict of lab 04 follows its table: said where it holds, its opposite where it does not."""

import pytest
from made import said, table
from made_ddp_fsdp import knobs_run, strategies_run, zero_run

from labkit.engine.recordings import replay
from labkit.provenance import of_source
from lessons import ddp_fsdp

NAN = float("nan")


def held(*rows, small=False):
    """Give the ledger of strategies: predicted, activations, peak, all in MiB."""
    names = ["strategy", "batch", "predicted", "activations", "peak", "counted_error"]
    made = table(*((name, 64, *sizes, 0.0005) for name, *sizes in rows), columns=names, small=small)
    return made.assign(unexplained_share=(made["peak"] - made["predicted"]) / made["peak"])


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            held(("ddp", 10_000, 9_000, 10_200), ("fsdp_full", 9_000, 9_000, 9_600)),
            ("saves 600 MiB per GPU, 5.9 % of DDP's memory", "are 90 % of it"),
            "nothing",
        ),
        (
            held(("ddp", 4_000, 1_000, NAN), ("fsdp_full", 1_920, 1_000, NAN)),
            "saves 2.03 GiB per GPU, 52 %",
            "ctivations",
        ),
        (held(("ddp", 10_000, 9_000, 10_000), ("fsdp_full", 9_900, 9_000, 10_100)), "saves nothing", "%"),
        (held(("ddp", 10_000, 9_000, 10_000)), "not both measured", "saves"),
    ],
)
def test_what_sharding_saves(made, parts, unsaid):
    said(ddp_fsdp.sharding_saves(made), parts, unsaid)


GOOD, BAD = held(("ddp", 10_000, 9_000, 10_200)), held(("ddp", 8_000, 7_000, 10_000))
CPU = held(("ddp", 32, 16, NAN), small=True)


@pytest.mark.parametrize(
    ("here", "recorded", "parts", "unsaid"),
    [
        (
            GOOD,
            GOOD,
            ("At most 2.0 % of a recorded peak is missing in the ledger**; here at most 2.0 %",),
            "not",
        ),
        (BAD, GOOD, ("here 20 % is not",), "here at most"),
        (GOOD, BAD, ("**20 % of a recorded peak is not explained**", "here at most 2.0 %"), "missing"),
        (CPU, GOOD, ("over their tensors, agrees with the formulas within 0.050 %",), "here at"),
        (CPU.assign(counted_error=0.07), GOOD, ("tensors, differs from the formulas by 7.0 %",), "agrees"),
    ],
)
def test_whether_the_ledger_holds(here, recorded, parts, unsaid):
    said(ddp_fsdp.ledger_holds(here, of_source(recorded.copy(), "recorded")), parts, unsaid)


def test_of_a_replay_the_ledger_is_judged_once():
    said(ddp_fsdp.ledger_holds(GOOD, GOOD), "At most 2.0 % of a recorded peak is missing in the ledger**.", "here")


def test_same_training():
    names = ["variant", "strategy", "loss_error", "update_error", "equal"]
    right = ("right", "ddp", 1e-7, 4e-7, True)
    both = table(right, ("own_shards", "fsdp_full", 1e-7, 2e-6, True), columns=names, ranks=2)
    said(
        ddp_fsdp.same_training(both), ("On 2 ranks all 2 trainings", "within 2.0 millionths", "FSDP full, by hand"), "✘"
    )
    wrong = table(right, ("own_shards", "fsdp_full", 0.1, 0.25, False), columns=names, ranks=2)
    said(ddp_fsdp.same_training(wrong), "✘ **Trained otherwise than one process: FSDP full, by hand.**", "✔")


def moved(*rows):
    names = ["strategy", "batch", "collective", "calls", "counted_calls", "mib", "counted_mib"]
    made = table(*rows, columns=names)
    return made.assign(equal=(made["calls"] == made["counted_calls"]) & (made["mib"] == made["counted_mib"]))


def test_collectives():
    right = moved(("ddp", 64, "all-reduce", 14, 14, 400.0, 400.0), ("ddp", 16, "all-reduce", 14, 14, 400.0, 400.0))
    more = moved(("fsdp_full", 64, "all-gather", 25, 26, 740.0, 770.0), ("ddp", 64, "all-reduce", 1, 1, 4.0, 4.0))
    recorded = of_source(right.copy(), "recorded")
    both = "formula, in calls and bytes**: 2 here and 2 in the recorded run"
    said(ddp_fsdp.collectives_agree(right, recorded), ("✔", both, "| DDP | all-reduce | 14 |"), "✘")
    said(ddp_fsdp.collectives_agree(right, right), "in calls and bytes**: 2 in the recorded run", "here")
    wrong = "✘ **1 kinds of collectives differ from the formulas here** (FSDP full, all-gather: 26 calls, not 25)."
    said(ddp_fsdp.collectives_agree(more, recorded), wrong, "✔")
    said(ddp_fsdp.collectives_agree(right, more), "formulas in the recorded run", "✔")


def test_costs_are_said_with_their_noise(tmp_path):
    full = ddp_fsdp.compared(strategies_run(tmp_path / "full"))
    few = ddp_fsdp.compared(strategies_run(tmp_path / "few", strategies=("ddp", "fsdp_full")))
    text = ddp_fsdp.costs(few, full, full)
    said(
        text,
        (
            "FSDP full beside DDP, recorded: same within noise at the larger",
            "| finding | this run | recorded, 4 GPUs |",
        ),
    )
    said(text, "share of ranks alone, larger batch | not measured | 95.0 ± 2.9 % |", ("CPU", "noise hides"))
    said(text, "| FSDP gradient-only beside DDP, larger batch | not measured | −3.8 ± 2.9 % |")
    said(text, "noise does not tell apart, smaller batch | not measured | gradient-only and full |")
    said(text, "a step of FSDP full, smaller batch, ms | 101.0 ± 1.5 | 101.0 ± 1.5 |")
    alike = ddp_fsdp.compared(strategies_run(tmp_path / "alike", step_ms={"fsdp_grad": 101.5, "fsdp_root": 102.0}))
    said(ddp_fsdp.costs(alike, alike, full), ("noise hides which way of FSDP is the fastest", "| all three |"))
    slow = ddp_fsdp.compared(strategies_run(tmp_path / "slow", step_ms={"fsdp_full": 125.0, "single": 100.0}))
    said(ddp_fsdp.costs(slow, slow, full), ("recorded: −20.0 ± 2.7 % at", "larger batch | same within noise |"))
    half = ddp_fsdp.compared(strategies_run(tmp_path / "half", step_ms={"fsdp_full": 250.0}))
    said(
        ddp_fsdp.costs(full, full, half),
        "**On as many GPUs it loses more than half of the rate at the smaller batch.**",
    )
    cpu = ddp_fsdp.compared(strategies_run(tmp_path / "cpu", device="cpu", size="small"))
    said(ddp_fsdp.costs(cpu, full, full), "CPU processes share cores", "this run |")


@pytest.mark.parametrize(
    ("rates", "parts", "unsaid"),
    [
        (
            (290, 293, 750, 1700, 1600),
            ("Up to bfloat16 autocast", "5.9× as fast**; the largest gain is TF32, 2.6×"),
            "No knob",
        ),
        ((290, 289, 288, 287, 200), ("No knob made the recorded step faster",), "Up to"),
    ],
)
def test_knobs(tmp_path, rates, parts, unsaid):
    recorded = ddp_fsdp.ladder(knobs_run(tmp_path / "recorded", rates))
    here = ddp_fsdp.ladder(knobs_run(tmp_path / "here", (30, 31), steps=tuple(recorded["knob"][:2]), size="small"))
    text = ddp_fsdp.knobs_gain(here, recorded, recorded)
    said(text, (*parts, "| TF32 |  |", "| 220.7 ± "), unsaid)


def reported(*peaks):
    """Give the memory per sample of fused and plain attention, without and with dropout."""
    knobs = [("fused", 0.0, 300.0), ("fused", 0.1, 200.0), ("plain", 0.0, 200.0), ("plain", 0.1, 150.0)]
    rows = [(*knob, 300 + i, peak) for i, (knob, peak) in enumerate(zip(knobs, peaks, strict=True))]
    return table(*rows, columns=["attention", "dropout", "samples_per_s", "formula_mb", "peak_mb"])


@pytest.mark.parametrize(
    ("recorded", "parts", "unsaid"),
    [
        (
            reported(310, 320, 460, 660),
            (
                "320 MB with fused attention and 660 MB with plain",
                "75 % of fused attention's rate",
                "Neither fits",
                "| plain attention, with dropout | 303 | 660 | 150 | – |",
                "| other | – | – | – | 570 |",
            ),
            ("peaks fit", "peak here", "<details>"),
        ),
        (reported(310, 320, 460, 580), ("The reports' peaks fit plain attention with dropout.",), "Neither"),
        (reported(*[NAN] * 4), ("301 MB with fused attention and 303 MB", "| 300 | not known | 300 |"), "no value"),
    ],
)
def test_memory_per_sample(recorded, parts, unsaid):
    said(ddp_fsdp.sample_memory(reported(*[NAN] * 4), recorded, {"one": 575.0, "other": 570.0}), parts, unsaid)


def test_memory_per_sample_of_this_run_stands_first():
    text = ddp_fsdp.sample_memory(reported(31, 32, 46, 66), reported(310, 320, 460, 660), {})
    said(text, ("| model | formula here, MB | peak here, MB |", "| plain attention, no dropout | 302 | 46.0 |"))
    said(text, "a sample adds 320 MB")


def test_zero(tmp_path):
    names = ["strategy", "limits", "samples_per_s", "spread_samples_per_s", "peak_mib", "link_mib"]
    rows = [("ddp", "", 290, 3, 9e3, 400), ("zero2", "", 210, 2, 8e3, 600), ("fsdp_full", "", 280, 1, 1e4, 9)]
    rows += [("zero3", "default", 210, 2, 2e4, 9)]
    both = table(*rows, columns=names, source="recorded on 2 × H200")
    said(ddp_fsdp.zero_beside_fsdp(both), ("75 % of the rate of FSDP full and 200 % of its peak", "1.5× DDP's bytes"))
    said(
        ddp_fsdp.zero_beside_fsdp(both),
        ("Recorded on 2 × H200:", "| ZeRO-3, default limits | 210 ± 2.0 | 19.5 | 9.00 |"),
    )
    said(
        ddp_fsdp.zero_beside_fsdp(both.assign(peak_mib=NAN)),
        ("75 % of the rate of FSDP full.", "| not known |"),
        "peak.",
    )
    said(ddp_fsdp.zero_beside_fsdp(table(*rows[:3], columns=names)), "did not measure both libraries", "%")
    failed = both.assign(samples_per_s=[290, 210, 280, NAN])
    said(ddp_fsdp.zero_beside_fsdp(failed), ("did not measure both", "| not known ± "), "%")
    on_cpus = table(*rows, columns=names, on_cpu=True)
    said(ddp_fsdp.zero_beside_fsdp(on_cpus), ("1.5× DDP's bytes", "CPU processes share cores"), "%")
    said(ddp_fsdp.features(), ("<details>", "| pipeline parallel |", "| tensor parallel |", "| choose it for |"))
    this_run = ddp_fsdp.zero(zero_run(tmp_path / "run"))
    said(ddp_fsdp.zero_beside_fsdp(this_run), "Measured here,", "ecorded")


def test_a_run_on_cpus_shows_no_rule_of_speed(tmp_path):
    def runs(device):
        made = strategies_run(tmp_path / device, device=device), knobs_run(tmp_path / "knobs" / device, device=device)
        return dict(zip(("strategies", "knobs"), made, strict=True)) | {"trial": replay(ddp_fsdp.RECORDED["trial"])}

    text = ddp_fsdp.in_one_minute(runs("cpu"), runs("cuda")).data
    assert text.count("| CPUs: not compared |") == 2, "neither of strategies nor of knobs"
