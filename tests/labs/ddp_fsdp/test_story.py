"""Each sentence of lab 04 follows its table: said where the claim holds, its opposite where it does not."""

import pytest
from made import said, table

from labkit.labs import ddp_fsdp

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
                "explain every peak to within 6.2 % (FSDP full, batch 64)",
                "Full sharding saves 600 MiB, 5.9 %.",
                "**It cannot save much: 90 % of the memory are activations**",
            ),
            ("not explained", "CPU"),
        ),
        (
            held(("ddp", 4_000, 1_000, 4_000), ("fsdp_full", 1_920, 1_000, 2_400)),
            ("**20 % of a peak is not explained** (FSDP full, batch 64).", "saves 1.56 GiB, 40 %."),
            ("cannot save", "explain every"),
        ),
        (
            held(("ddp", 10_000, 9_000, 10_000), ("fsdp_full", 9_900, 9_000, 10_100)),
            ("**Full sharding saves nothing**: it takes 100 MiB more than DDP.",),
            ("cannot save much", "saves 1"),
        ),
        (
            held(("ddp", 32, 16, NAN), ("fsdp_full", 26, 16, NAN), small=True),
            ("A CPU has no allocator to ask.", "the formulas', to 0.050 %", "should save 6.00 MiB, 19 %.", SMALL),
            ("peak", "cannot save", "differs"),
        ),
        (
            held(("ddp", 32, 16, NAN)).assign(counted_error=0.07),
            ("**What the ranks counted differs from the formulas by up to 7.0 %.**",),
            ("no allocator", "sharding"),
        ),
        (held(("single", 100, 60, 101)), ("to within 0.99 % (one rank alone",), ("sharding", SMALL)),
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
    every = "were called as often, and with as many bytes, as the formulas say"
    said(ddp_fsdp.explain_sent(moved(*DDP, *FULL)), (f"All 4 collectives {every}", "FSDP full sends 1.4× what"), "not")
    wrong = [("fsdp_full", 64, "all-gather", 25, 26, 740.0, 770.0), FULL[1]]
    parts = ("**1 of 4 collectives are not the formulas'**: FSDP full: all-gather (26 calls, not 25).", "sends 1.5×")
    said(ddp_fsdp.explain_sent(moved(*DDP, *wrong)), parts, every)
    said(ddp_fsdp.explain_sent(moved(*DDP)), ("All 2 collectives",), "FSDP")


def rates(*rows, small=False):
    return table(*rows, columns=["strategy", "batch", "samples_per_s", "efficiency"], small=small)


def apart(*rows):
    return table(*rows, columns=["strategy", "batch", "percent", "resolved"])


@pytest.mark.parametrize(
    ("made", "others", "parts", "unsaid"),
    [
        (
            rates(("ddp", 64, 293.0, 0.99)),
            apart(("fsdp_full", 64, -1.28, True), ("fsdp_grad", 64, 0.94, True)),
            (
                "DDP, batch 64: 293 samples/s, 99 % of ranks that exchange nothing.",
                "Told apart from DDP: FSDP full by -1.3 % (batch 64) and FSDP gradient-only by +0.9 % (batch 64).",
            ),
            ("Not resolved", "Not measured", SMALL),
        ),
        (
            rates(("ddp", 16, 246.0, NAN), small=True),
            apart(("fsdp_full", 16, -1.2, False)),
            ("**Not resolved by these data**: FSDP full (batch 16).", SMALL),
            ("Told apart", "exchange nothing"),
        ),
        (
            rates(("ddp", 64, 293.0, NAN)),
            apart(("fsdp_full", 64, -9, True), ("fsdp_root", 64, NAN, False)),
            ("by -9.0 %", "Not measured: FSDP as one group (batch 64)."),
            ("Not resolved",),
        ),
        (rates(("single", 64, 290.0, 1.0)), apart(), ("There is no DDP here to compare with.",), ("Told", "resolved")),
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
                "All together: 5.9× the first configuration's rate. Most comes from TF32, 2.6×.",
                "Not resolved by these data: fused.",
            ),
            ("Slower", "Up to", "Not measured"),
        ),
        (
            ladder(("plain", 290), ("TF32", 750), ("compile", 600)),
            ("Up to TF32: 2.6×", "**Slower**: compile (0.80×)."),
            ("All together", "Not resolved"),
        ),
        (
            ladder(("plain", 290), ("TF32", NAN), ("autocast", 580)),
            ("All together: 2.0×", "Most comes from autocast, 2.0×", "Not measured: TF32 (out of memory)."),
            ("Not resolved",),
        ),
        (
            ladder(("plain", 290), ("fused", 289), ("compile", 200)),
            ("No knob made the step faster", "**Slower**: compile (0.69×).", "Not resolved by these data: fused."),
            ("Most comes", "together"),
        ),
        (ladder(("plain", 290), ("fused", 350), spread=40), ("No knob made", "these data: fused."), ("Most comes",)),
        (ladder(("plain", 290)), ("One rung is no ladder.",), ("together", "No knob")),
        (ladder(("plain", 290), ("TF32", NAN)), ("One rung is no ladder.", "Not measured: TF32"), ("together",)),
    ],
)
def test_knobs(made, parts, unsaid):
    said(ddp_fsdp.explain_knobs(made), parts, *unsaid)


def test_equality():
    names = ["strategy", "loss_error", "update_error", "equal"]
    right = table(("ddp", 1e-7, 4e-7, True), ("fsdp_full", 1e-7, 2e-6, True), columns=names, ranks=2)
    parts = ("All 2 strategies on 2 ranks trained as one process does", "differ by 2e-06, rounding")
    said(ddp_fsdp.explain_equality(right), parts, "otherwise", SMALL)
    wrong = table(("ddp", 1e-7, 4e-7, True), ("fsdp_full", 0.1, 0.25, False), columns=names, small=True)
    parts = ("**FSDP full trained otherwise than one process** (by up to 25 %).", SMALL)
    said(ddp_fsdp.explain_equality(wrong), parts, "DDP", "All")


def stages(*rows, spread=1.0):
    names = ["strategy", "samples_per_s", "peak_mib", "link_mib"]
    return table(*rows, columns=names).assign(spread_samples_per_s=spread)


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            stages(("ddp", 290, 9e3, 400), ("zero2", 210, 8e3, 600), ("fsdp_grad", 280, 1e4, 400)),
            (
                "ZeRO-2 beside FSDP gradient-only: 0.750× its rate and 0.800× its peak memory.",
                "ZeRO-2 sends 1.5× DDP's bytes: **it all-reduces gradients of which it keeps a part**",
            ),
            ("ZeRO-3", "what DDP sends"),
        ),
        (
            stages(("ddp", 290, 9e3, 400), ("zero2", 279, NAN, 401), ("fsdp_grad", 280, NAN, 400)),
            (
                "ZeRO-2 beside FSDP gradient-only: a rate not told apart from it by these data.",
                "ZeRO-2 sends what DDP sends.",
            ),
            ("peak memory", "keeps a part"),
        ),
        (stages(("zero3", 140, 1e4, 9), ("fsdp_full", 280, 1e4, 9)), ("ZeRO-3 beside FSDP full: 0.500×",), ("ZeRO-2",)),
        (stages(("zero3", 240, 1e4, 9), ("fsdp_full", 280, 1e4, 9), spread=30), ("not told apart",), ("× its rate",)),
        (stages(("ddp", 290, 9e3, 400)), ("Only one library was measured.",), ("ZeRO",)),
    ],
)
def test_zero(made, parts, unsaid):
    said(ddp_fsdp.explain_zero(made), parts, *unsaid)


def wrapped(printed, root=522.0, grad=913.0, full=1156.0):
    rows = [("fsdp_root", root), ("fsdp_grad", grad), ("fsdp_full", full)]
    made = table(*rows, columns=["strategy", "predicted_mib"]).assign(printed_mib=printed)
    made.attrs["ranks"] = 4
    return made.assign(apart_mib=made["printed_mib"] - made["predicted_mib"])


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            wrapped(733.0),
            ("the printed 733 MiB lie between what one group (522) and gradient-only sharding (913)",),
            ("are what",),
        ),
        (wrapped(900.0), ("the printed 900 MiB are what gradient-only sharding should save.",), ("lie",)),
        (wrapped(300.0), ("lie below what one group (522) should save.",), ("are what", "between")),
        (wrapped(1400.0), ("lie above what full sharding (1 156) should save.",), ("are what", "between")),
    ],
)
def test_wrapping(made, parts, unsaid):
    said(ddp_fsdp.explain_wrappings(made), parts, *unsaid)
