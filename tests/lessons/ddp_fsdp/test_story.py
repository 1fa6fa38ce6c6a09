"""Each sentence of lab 04 follows its table: said where the claim holds, its opposite where it does not."""

import pytest
from made import said, table

from lessons import ddp_fsdp

NAN = float("nan")
SMALL = "This run is small"


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
            (
                "explains every peak",
                "6.2 % (FSDP full, batch 64)",
                "saves 600 MiB by the measured peaks, which is 5.9 %",
                "90 % of DDP's memory are activations",
            ),
            ("not explained", "CPU"),
        ),
        (
            held(("ddp", 4_000, 1_000, 4_000), ("fsdp_full", 1_920, 1_000, 2_400)),
            (
                "**20 % of a peak is not explained** (FSDP full, batch 64).",
                "saves 1.56 GiB by the measured peaks, which is 40 %",
            ),
            ("activations", "explains every"),
        ),
        (
            held(("ddp", 10_000, 9_000, 10_000), ("fsdp_full", 9_900, 9_000, 10_100)),
            ("saves nothing by the measured peaks**: it needs 100 MiB more than DDP.",),
            ("activations", "saves 1"),
        ),
        (
            held(("ddp", 32, 16, NAN), ("fsdp_full", 26, 16, NAN), small=True),
            ("agree with the formulas to within 0.050 %", "saves 6.00 MiB by the ledger, which is 19 %", SMALL),
            ("explains every", "activations, which", "differs"),
        ),
        (
            held(("ddp", 32, 16, NAN)).assign(counted_error=0.07),
            ("**What the ranks counted differs from the formulas by up to 7.0 %.**",),
            ("agree", "sharding"),
        ),
        (held(("single", 100, 60, 101)), ("0.99 % (one rank alone",), ("sharding", SMALL)),
    ],
)
def test_memory(made, parts, unsaid):
    said(ddp_fsdp.explain_memory(made), parts, *unsaid)


def moved(*rows):
    names = ["strategy", "batch", "collective", "calls", "counted_calls", "mib", "counted_mib"]
    made = table(*rows, columns=names)
    return made.assign(equal=(made["calls"] == made["counted_calls"]) & (made["mib"] == made["counted_mib"]))


DDP = [("ddp", 64, "all-reduce", 14, 14, 400.0, 400.0), ("ddp", 64, "broadcast", 1, 1, 9.0, 9.0)]
FULL = [("fsdp_full", 64, "all-gather", 25, 25, 740.0, 740.0), ("fsdp_full", 64, "reduce-scatter", 13, 13, 400.0, 400)]


def test_sent():
    every = "agree with the formulas"
    said(ddp_fsdp.explain_sent(moved(*DDP, *FULL)), (f"All 4 collectives {every}", "FSDP full sends 1.4× what"), "not")
    wrong = [("fsdp_full", 64, "all-gather", 25, 26, 740.0, 770.0), FULL[1]]
    parts = ("**1 of 4 collectives differ from the formulas**: FSDP full: all-gather (26 calls, not 25).", "sends 1.5×")
    said(ddp_fsdp.explain_sent(moved(*DDP, *wrong)), parts, every)
    said(ddp_fsdp.explain_sent(moved(*DDP)), ("All 2 collectives",), "FSDP")


def rates(*rows, small=False):
    made = table(*rows, columns=["strategy", "batch", "samples_per_s", "efficiency"], small=small)
    return made.assign(spread_efficiency=0.005)


def apart(*rows):
    return table(*rows, columns=["strategy", "batch", "percent", "resolved"])


@pytest.mark.parametrize(
    ("made", "others", "parts", "unsaid"),
    [
        (
            rates(("ddp", 64, 293.0, 0.99)),
            apart(("fsdp_full", 64, -1.28, True), ("fsdp_grad", 64, 0.94, True)),
            (
                "At batch 64 DDP trains 293 samples/s, 99 %",
                "FSDP full is slower than DDP beyond noise, by 1.3 %",
                "FSDP gradient-only is faster than DDP beyond noise, by 0.9 %",
            ),
            ("Within noise", "Not measured", "within noise", "noise between", SMALL),
        ),
        (
            rates(("ddp", 64, 293.0, 0.997), ("ddp", 16, 250.0, 1.03)),
            apart(("fsdp_full", 64, -1.28, True), ("fsdp_grad", 64, -3.1, True)),
            (
                "exchange nothing (the difference is within noise).",
                "103 % of the rate of ranks that exchange nothing (above 100 % only noise",
                "At batch 64 FSDP full and FSDP gradient-only are slower than DDP beyond noise, by 1.3 to 3.1 %.",
            ),
            ("faster",),
        ),
        (
            rates(("ddp", 16, 246.0, NAN), small=True),
            apart(("fsdp_full", 16, -1.2, False)),
            ("**Within noise**, compared with DDP: FSDP full (batch 16).", SMALL),
            ("beyond noise", "exchange nothing"),
        ),
        (
            rates(("ddp", 64, 293.0, NAN)),
            apart(("fsdp_full", 64, -9, True), ("fsdp_root", 64, NAN, False)),
            ("slower than DDP beyond noise, by 9.0 %", "Not measured: FSDP as one group (batch 64)."),
            ("Within noise",),
        ),
        (rates(("single", 64, 290.0, 1.0)), apart(), ("There is no DDP run to compare with.",), ("beyond", "Within")),
    ],
)
def test_strategies(made, others, parts, unsaid):
    said(ddp_fsdp.explain_strategies(made, others), parts, *unsaid)


def ladder(*rungs, spread=1.0):
    """Give a ladder of (knob, samples a second), NaN where a rung did not fit."""
    made = table(*rungs, columns=["knob", "samples_per_s"], unit="samples")
    made["spread_samples_per_s"] = spread
    made["status"] = made["samples_per_s"].isna().map({True: "out of memory", False: "ok"})
    rate = made["samples_per_s"]
    return made.assign(times_previous=rate / rate.ffill().shift(), times_first=rate / rate.iloc[0])


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            ladder(("plain", 290), ("fused", 291), ("TF32", 750), ("autocast", 1700)),
            (
                "All knobs together make the step 5.9× as fast. The largest gain is TF32: 2.6×.",
                "Within noise: fused.",
            ),
            ("Slower", "up to", "Not measured"),
        ),
        (
            ladder(("plain", 290), ("TF32", 750), ("compile", 600)),
            ("up to TF32 make the step 2.6×", "**Slower** than the setting before: compile (0.80×)."),
            ("together", "Within noise"),
        ),
        (
            ladder(("plain", 290), ("TF32", NAN), ("autocast", 580)),
            ("together make the step 2.0×", "gain is autocast: 2.0×", "Not measured: TF32 (out of memory)."),
            ("Within noise",),
        ),
        (
            ladder(("plain", 290), ("fused", 289), ("compile", 200)),
            ("No knob made the step faster", "compile (0.69×).", "Within noise: fused."),
            ("largest gain", "together"),
        ),
        (
            ladder(("plain", 290), ("fused", 350), spread=40),
            ("No knob made", "Within noise: fused."),
            ("largest gain",),
        ),
        (ladder(("plain", 290)), ("Only one setting was measured.",), ("together", "No knob")),
        (
            ladder(("plain", 290), ("TF32", NAN)),
            ("Only one setting was measured.", "Not measured: TF32"),
            ("together",),
        ),
    ],
)
def test_knobs(made, parts, unsaid):
    said(ddp_fsdp.explain_knobs(made), parts, *unsaid)


def test_equality():
    names = ["strategy", "loss_error", "update_error", "equal"]
    right = table(("ddp", 1e-7, 4e-7, True), ("fsdp_full", 1e-7, 2e-6, True), columns=names, ranks=2)
    parts = ("All 2 strategies on 2 ranks train as one process does", "at most 2.0 millionths")
    said(ddp_fsdp.explain_equality(right), parts, "otherwise", SMALL)
    wrong = table(("ddp", 1e-7, 4e-7, True), ("fsdp_full", 0.1, 0.25, False), columns=names, small=True)
    parts = ("**FSDP full trained otherwise than one process** (by up to 25 %).", SMALL)
    said(ddp_fsdp.explain_equality(wrong), parts, "DDP", "All")


def stages(*rows, spread=1.0):
    names = ["strategy", "limits", "samples_per_s", "peak_mib", "link_mib"]
    return table(*rows, columns=names).assign(spread_samples_per_s=spread)


GRAD, FULL_ROW = ("fsdp_grad", "", 280, 1e4, 400), ("fsdp_full", "", 280, 1e4, 9)


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            stages(("ddp", "", 290, 9e3, 400), ("zero2", "", 210, 8e3, 600), GRAD),
            (
                "ZeRO-2: 75 % of the rate of FSDP gradient-only and 80 % of its peak memory.",
                "In this run ZeRO-2 sends 1.5×",
                "FSDP also shards the parameters",
            ),
            ("ZeRO-3", "ZeRO-2 sends what"),
        ),
        (
            stages(("ddp", "", 290, 9e3, 400), ("zero1", "", 283, 8e3, 600), ("zero2", "", 210, 8e3, 600), GRAD),
            ("DDP shards nothing; ZeRO-1 shards the optimizer states.", "ZeRO-1 and ZeRO-2 send 1.5× DDP's bytes"),
            ("what DDP sends", "shards the same"),
        ),
        (
            stages(("ddp", "", 290, 9e3, 400), ("zero2", "", 279, NAN, 401), GRAD),
            ("ZeRO-2: the rate of FSDP gradient-only, within noise.", "ZeRO-2 sends what DDP sends."),
            ("peak memory", "In this run"),
        ),
        (
            stages(("zero3", "zero", 140, 1e4, 9), ("zero3", "default", 210, 2e4, 9), FULL_ROW),
            (
                "ZeRO-3 with its limits at 0: 50 % of the rate of FSDP full and 100 % of its peak",
                "ZeRO-3 with DeepSpeed's own limits: 75 % of the rate of FSDP full and 200 % of its peak",
            ),
            ("ZeRO-2",),
        ),
        (stages(("ddp", "", 290, 9e3, 400)), ("Only one library was measured.",), ("ZeRO",)),
    ],
)
def test_zero(made, parts, unsaid):
    said(ddp_fsdp.explain_zero(made), parts, *unsaid)


def accumulated(whole, parts, every, peaks=(10e3, 6e3, 6e3)):
    rows = zip((1, 4, 4), ("last", "last", "every"), (whole, parts, every), peaks, (400, 400, 1600), strict=True)
    names = ["strategy", "micro_batches", "synced", "samples_per_s", "peak_mib", "gradients_mib"]
    return table(*(("ddp", *row) for row in rows), columns=names).assign(spread_samples_per_s=1.0)


def test_accumulation():
    parts = (
        "Accumulation saves memory and costs speed",
        "90 % of the rate of the whole batch, with 60 % of its peak memory",
        "sends 4 times the gradients. It reaches 80 %",
    )
    said(ddp_fsdp.explain_accumulation(accumulated(300, 270, 216)), parts, "noise")
    parts = ("the rate of the whole batch, within noise.", "the rate of one exchange, within noise")
    said(ddp_fsdp.explain_accumulation(accumulated(300, 299, 298, peaks=(NAN,) * 3)), parts, "memory")


def reported(*peaks, small=False):
    """Give the memory per sample of fused and plain attention, without and with dropout."""
    knobs = [("fused", 0.0, 300.0), ("fused", 0.1, 290.0), ("plain", 0.0, 200.0), ("plain", 0.1, 150.0)]
    rows = [(*knob, 300 + i, peak) for i, (knob, peak) in enumerate(zip(knobs, peaks, strict=True))]
    return table(*rows, columns=["attention", "dropout", "samples_per_s", "formula_mb", "peak_mb"], small=small)


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            reported(310, 320, 460, 660),
            ("310 MB", "660 MB", "50 % of the rate", "No combination comes"),
            ("are those",),
        ),
        (reported(310, 320, 460, 580), ("those of plain attention with dropout",), ("No combination",)),
        (reported(*[NAN] * 4, small=True), ("300 MB", "303 MB", "by formula", SMALL), ("combination", "are those")),
    ],
)
def test_memory_per_sample(made, parts, unsaid):
    said(ddp_fsdp.explain_per_sample(made, {"one": 575.0, "other": 570.0}), parts, *unsaid)
