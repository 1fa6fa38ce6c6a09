"""Each sentence of lab 05's runs follows its table: said where the claim holds, its opposite where it does not."""

import pandas as pd
import pytest
from made import said, table

from lessons.sharding.story import runs

NAN = float("nan")


def scaling(ddp, full, shared=0.71, mfu=0.5, spread=0.0):
    rows = [
        ("large", "single", 1, 1.0, mfu),
        ("large", "ddp", 2, ddp, 0.9 * mfu),
        ("large", "fsdp_full", 2, full, NAN),
        ("shared out", "single", 1, 1.0, NAN),
        ("shared out", "ddp", 2, 0.94, NAN),
        ("shared out", "fsdp_full", 2, shared, NAN),
    ]
    made = table(*rows, columns=["load", "strategy", "ranks", "efficiency", "mfu"])
    return made.assign(spread_efficiency=spread)


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            scaling(0.96, 0.951),
            (
                "with the large batch: DDP on 2 GPUs (96 %) and FSDP full on 2 GPUs (95 %).",
                "FSDP full keeps only 71 %.",
                "best MFU is 50 % (one rank alone",
            ),
            "**Less",
        ),
        (
            scaling(0.96, 0.9),
            ("batch: DDP on 2 GPUs (96 %).", "**Less than 95 %**: FSDP full on 2 GPUs (90 %)."),
            "96 %) and",
        ),
        (scaling(0.9, 0.8), ("%**: DDP on 2 GPUs (90 %) and FSDP full on 2 GPUs (80 %).",), "At least 95 %"),
        (scaling(0.96, 0.96, shared=0.95), ("FSDP full on 2 GPUs (96 %)",), "only"),
        (scaling(0.96, 0.96, mfu=NAN), ("only 71 %",), "MFU"),
        (scaling(0.96, 0.9498), ("%**: FSDP full on 2 GPUs (94.98 %).",), "(95 %)"),
        (
            scaling(0.99, 0.9498, spread=0.024),
            (
                "batch: DDP on 2 GPUs (99 %).",
                "**Open**, because 95 % lies inside the noise: FSDP full on 2 GPUs (95.0 ± 2.4 %).",
            ),
            "**Less",
        ),
    ],
)
def test_scaling(made, parts, unsaid):
    said(runs.explain_scaling(made), parts, unsaid)
    said(
        runs.explain_scaling(made.assign(efficiency=made["efficiency"] - 0.3)), ("**Less than 95 %**",), "At least 95 %"
    )


def held(share, peaks=(60000.0, 50000.0), counted=0.002):
    rows = [("large", "ddp", 2, peaks[0], -share, 0.01), ("large", "fsdp_full", 2, peaks[1], 0.02, counted)]
    made = table(*rows, columns=["load", "strategy", "ranks", "peak", "unexplained_share", "counted_error"])
    return made.assign(parameters=1024.0, gradients=1024.0, optimizer=2048.0, activations=10240.0)


def test_memory():
    saving = (
        "divides the peak by 1.20, not by 2. It shards 4.00 GiB of parameters, gradients and states, but not the 10.0"
    )
    said(runs.explain_memory(held(0.07)), ("explains all 2 peaks** to within 7.0 %.", saving), "not explained")
    said(runs.explain_memory(held(0.12)), ("**12 % of a peak is not explained** (DDP, large batch).",), "explains all")
    said(runs.explain_memory(held(0.07).iloc[1:]), ("explains all 1 peaks** to within 2.0 %",), "divides")
    cpu = held(NAN, (NAN, NAN), 0.03)
    said(runs.explain_memory(cpu), ("to within 3.0 %. There is no allocator",), ("peaks", "divides"))


def moved(equal, load="large"):
    columns = ["load", "strategy", "collective", "calls", "counted_calls", "counted_mib", "equal"]
    return table((load, "ddp", "all-reduce", 55, 54, 1476.0, equal), columns=columns)


def test_strategies_say_rates_and_both_ledgers():
    rates = scaling(0.96, 0.951)

    text = "explains all 2 peaks** to within 7.0 %."
    said(runs.explain_strategies(rates, held(0.07), moved(True)), (text, "All 1 collectives agree"), "differ")
    wrong = runs.explain_strategies(rates, held(0.12), moved(False))
    said(
        wrong, ("**12 % of a peak", "**1 of 1 collectives differ from the formulas**: DDP: all-reduce (54 calls"), "All"
    )
    both = pd.concat([moved(True), moved(False, "shared out")])
    both.attrs["small"] = False
    said(runs.explain_strategies(rates, held(0.07), both), ("All 1 collectives",), "differ")


def rungs(*rates, mfu=0.52, small=False):
    rows = [
        (f"rung {i}", "ok", rate, 1.0, rate / rates[max(0, i - 1)], rate / rates[0], mfu)
        for i, rate in enumerate(rates)
    ]
    columns = ["knob", "status", "tokens_per_s", "spread_tokens_per_s", "times_previous", "times_first", "mfu"]
    return table(*rows, columns=columns, unit="tokens", small=small)


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            rungs(26000.0, 52000.0, 97746.0),
            (
                "make the step 3.8× as fast",
                "gain is rung 1: 2.0×",
                "97 746 tokens/s, which is 3.00 times the printed 32 582.",
                "MFU is 52 %.",
            ),
            "Slower",
        ),
        (
            rungs(8000.0, 20000.0, 16291.0, mfu=NAN),
            (
                "rung 2 (0.81×).",
                "20 000 tokens/s, which is 0.614 times the printed",
            ),
            "MFU",
        ),
        (rungs(25779.0, 52000.0), ("rung 0, reaches 25 779 tokens/s: less than the 32 582",), "Only one"),
        (rungs(32000.0, 52000.0), ("reaches 52 000 tokens/s",), "first rung"),
        (rungs(100.0, 100.5), ("Within noise: rung 1.",), "Slower"),
        (rungs(100.0, 200.0, small=True), ("make the step 2.0×", "This run is small"), "printed"),
        (rungs(100.0), ("Only one setting was measured.",), "together"),
    ],
)
def test_ladder(made, parts, unsaid):
    said(runs.explain_ladder(made, 32582), parts, unsaid)


def sizes(rates, peaks=None, status="out of memory"):
    rows = [
        (2**i, rate, (peaks or {}).get(i, NAN), 1024.0 * 2**i, "ok" if rate == rate else status)
        for i, rate in enumerate(rates)
    ]
    return table(*rows, columns=["micro_batch", "tokens_per_s", "peak_mib", "predicted_mib", "status"])


FULL = {i: 1000.0 * 2**i for i in range(4)}


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            sizes([10.0, 95.0, 100.0, NAN], FULL),
            (
                "From 2 sequences on the rate is within 5 % of the best, 100 tokens/s.",
                "8 sequences are out of memory: by the ledger they need 8.00 GiB.",
                "ledger and peak differ by at most 2.4 %",
            ),
            "slower",
        ),
        (sizes([10.0, 95.0, 98.0, 100.0], FULL), ("From 2 sequences on",), "out of memory"),
        (sizes([10.0, 90.0, 100.0]), ("From 4 sequences on",), ("ledger", "out of memory")),
        (sizes([10.0, 100.0, 80.0, 99.0]), ("From 8 sequences on",), "From 2"),
        (sizes([10.0, 100.0, 80.0]), ("The best rate, 100 tokens/s, has 2 sequences; more are slower.",), "From"),
        (sizes([NAN, NAN]), ("1 sequences are out of memory: by the ledger they need 1.00 GiB.",), ("From", "differ")),
    ],
)
def test_batches(made, parts, unsaid):
    said(runs.explain_batches(made), parts, unsaid)


@pytest.mark.parametrize("small", [True, False])
def test_speed_says_both_and_once_what_small_means(small):
    made = sizes([10.0, 90.0, 100.0])
    made.attrs["small"] = small
    text = runs.explain_speed(rungs(100.0, 200.0, small=small), made, 32582)
    said(text, ("make the step 2.0×", "From 4 sequences on"), "nan")
    assert text.data.count("This run is small") == small


def accumulated(*rows):
    columns = ["strategy", "step_ms_every", "saved_ms", "resolved", "gradients_mib_every", "gradients_mib_last"]
    columns += ["peak_mib_every", "peak_mib_last"]
    return table(*rows, columns=columns).assign(micro_batches=4)


@pytest.mark.parametrize(
    ("row", "parts", "unsaid"),
    [
        (
            ("ddp", 400.0, 20.0, True, 6000, 1500, 100, 100),
            ("DDP, 4 micro-batches", "gradients sent fall 4×", "the step takes 5.0 % less time."),
            ("more", "noise", "higher"),
        ),
        (
            ("fsdp_full", 400.0, -20.0, True, 6000, 1500, 100, 850),
            ("FSDP full, ", "takes 5.0 % **more** time", "the peak is 750 MiB higher"),
            ("less", "noise"),
        ),
        (
            ("ddp", 400.0, 20.0, False, 4500, 1500, NAN, NAN),
            ("fall 3×", "stays the same within noise."),
            ("the step takes", "higher"),
        ),
    ],
)
def test_accumulation(row, parts, unsaid):
    said(runs.explain_accumulation(accumulated(row)), parts, unsaid)
    both = runs.explain_accumulation(accumulated(row, ("fsdp_grad", 100.0, 10.0, True, 6, 1, 1, 1)))
    said(both, (*parts, "FSDP gradient-only, 4 micro-batches", "fall 6×", "10 % less time"), ())


def hidden(apart, slowed=0.0, idle=0.0, steps=3.0):
    columns = [
        "strategy",
        "communication_ms",
        "trace_ms",
        "apart_points",
        "slowed_ms",
        "idle_ms",
        "steps_ms",
        "waits_ms",
    ]
    return table(("ddp", 10.0, 1.2, apart, slowed, idle, steps, 0.8), columns=columns)


FREE = "not free"


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            hidden(2.5),
            (
                "**DDP** communicates for 10.0 ms.",
                "1.20 ms, 3.00 ms and 800 µs. The methods agree to 2.5 percentage points.",
            ),
            ("They differ", FREE),
        ),
        (
            hidden(63, slowed=5.0),
            ("differ by 63 percentage points.** In the trace computing takes 5.00 ms longer", FREE, "under DDP"),
            ("agree", "idles"),
        ),
        (hidden(63, idle=20.0), ("In the trace the GPU idles 20.0 ms more.",), (FREE, "computing takes")),
        (hidden(63, slowed=5.0, idle=20.0), ("longer than alone and the GPU idles 20.0 ms more",), "agree"),
        (hidden(63), ("63 percentage points.**",), ("In the trace", "agree")),
        (hidden(63, slowed=NAN, idle=NAN), ("63 percentage points.**",), ("In the trace", FREE)),
        (hidden(63, steps=-1.0), ("1.20 ms, 0 µs and",), "agree"),
        (hidden(1).iloc[:0], ("Nothing was communicated.",), "Exposed"),
    ],
)
def test_overlap(made, parts, unsaid):
    said(runs.explain_overlap(made), parts, unsaid)


def tried(*rows, peak=NAN, small=False):
    names = ["strategy", "option", "tokens_per_s", "activations_mib", "gradients_mib", "loss_off"]
    return table(*rows, columns=names, small=small).assign(spread_tokens_per_s=1.0, peak_mib=peak)


ALIKE = (("single", "", 100.0, 200, NAN, 0.0), ("ddp", "", 190.0, 200, 64, 1e-6))


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            tried(*ALIKE, ("ddp", "recomputed", 152.0, 50, 64, 1e-6), ("ddp", "PowerSGD", 171.0, 200, 2, 0.02)),
            (
                "same losses**",
                "25 % of the activations, 80 % of the rate",
                "PowerSGD sends 32.0 times less, 90 %",
                "2 %",
            ),
            ("differ**", "noise"),
        ),
        (
            tried(*ALIKE, ("fsdp_full", "", 180.0, 200, 64, 0.03)),
            ("**Losses differ** by up to 3.0 % (FSDP full)",),
            "same",
        ),
        (
            tried(*ALIKE, ("ddp", "float16 gradients", 190.5, 200, 32, 1e-4), peak=5.0, small=True),
            ("sends 2.00 times less, the same rate within noise", "This run is small"),
            "of the rate",
        ),
    ],
)
def test_options(made, parts, unsaid):
    said(runs.explain_options(made), parts, unsaid)


def test_the_reports_own_comparison():
    names = ["strategy", "ranks", "speedup", "spread_speedup", "printed_speedup"]
    rows = [("single", 1, 1.0, 0.0, 1.0), ("ddp", 2, 1.94, 0.02, 1.93), ("fsdp_full", 2, 1.7, 0.02, 1.91)]
    parts = ("DDP on 2 ranks is 1.94 ± 0.02 times", "1.93: as printed.", "prints 1.91: **less**")
    said(runs.explain_reported(table(*rows, columns=names)), parts, "more than")
