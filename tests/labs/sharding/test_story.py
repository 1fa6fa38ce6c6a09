"""Each sentence of lab 05's runs follows its table: said where the claim holds, its opposite where it does not."""

import pandas as pd
import pytest
from made import said, table

from labkit.labs.sharding.story import runs

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
                "at least 95 % of a GPU alone: DDP on 2 (96 %) and FSDP full on 2 (95 %).",
                "FSDP full falls to 71 %.",
                "Best MFU: 50 % (one rank alone",
            ),
            "**Less**",
        ),
        (scaling(0.96, 0.9), ("alone: DDP on 2 (96 %).", "**Less**: FSDP full on 2 (90 %)."), "96 %) and"),
        (scaling(0.9, 0.8), ("**Less**: DDP on 2 (90 %) and FSDP full on 2 (80 %).",), "at least 95 %"),
        (scaling(0.96, 0.96, shared=0.95), ("FSDP full on 2 (96 %)",), "falls"),
        (scaling(0.96, 0.96, mfu=NAN), ("falls to 71 %",), "MFU"),
        (scaling(0.96, 0.9498), ("**Less**: FSDP full on 2 (94.98 %).",), "(95 %)"),
        (
            scaling(0.99, 0.9498, spread=0.024),
            (
                "alone: DDP on 2 (99 %).",
                "**Open**, because 95 % lies inside the spread: FSDP full on 2 (95.0 ± 2.4 %).",
            ),
            "**Less**",
        ),
    ],
)
def test_scaling(made, parts, unsaid):
    said(runs.explain_scaling(made), parts, unsaid)
    said(runs.explain_scaling(made.assign(efficiency=made["efficiency"] - 0.3)), ("**Less**",), "at least 95 %")


def held(share, peaks=(60000.0, 50000.0), counted=0.002):
    rows = [("large", "ddp", 2, peaks[0], -share, 0.01), ("large", "fsdp_full", 2, peaks[1], 0.02, counted)]
    made = table(*rows, columns=["load", "strategy", "ranks", "peak", "unexplained_share", "counted_error"])
    return made.assign(parameters=1024.0, gradients=1024.0, optimizer=2048.0, activations=10240.0)


def test_memory():
    saving = "divides the peak by 1.20, not by 2: only 4.00 GiB are parameters, gradients and states; 10.0 GiB are act"
    said(runs.explain_memory(held(0.07)), ("explain all 2 peaks to within 7.0 %.", saving), "not explained")
    said(runs.explain_memory(held(0.12)), ("**12 % of a peak is not explained** (DDP, large).",), "explain all")
    said(runs.explain_memory(held(0.07).iloc[1:]), ("explain all 1 peaks to within 2.0 %",), "divides")
    cpu = held(NAN, (NAN, NAN), 0.03)
    said(runs.explain_memory(cpu), ("by at most 3.0 %; a CPU has no allocator",), ("peaks", "divides"))


def moved(equal, load="large"):
    columns = ["load", "strategy", "collective", "calls", "counted_calls", "counted_mib", "equal"]
    return table((load, "ddp", "all-reduce", 55, 54, 1476.0, equal), columns=columns)


def test_ledgers_say_both():
    text = "explain all 2 peaks to within 7.0 %."
    said(runs.explain_ledgers(held(0.07), moved(True)), (text, "All 1 collectives were called as often"), "not the")
    wrong = runs.explain_ledgers(held(0.12), moved(False))
    said(wrong, ("**12 % of a peak", "**1 of 1 collectives are not the formulas'**: DDP: all-reduce (54 calls"), "All")
    both = pd.concat([moved(True), moved(False, "shared out")])
    both.attrs["small"] = False
    said(runs.explain_ledgers(held(0.07), both), ("All 1 collectives",), "formulas'**")


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
                "All together: 3.8×",
                "Most comes from rung 1, 2.0×",
                "97 746 tokens/s, is 3.00× the published 32 582.",
                "MFU there: 52 %.",
            ),
            "Slower",
        ),
        (
            rungs(8000.0, 20000.0, 16291.0, mfu=NAN),
            (
                "**Slower**: rung 2 (0.81×).",
                "The top, 20 000 tokens/s, is 0.614× the published",
            ),
            "MFU",
        ),
        (rungs(25779.0, 52000.0), ("gives 25 779 tokens/s, not the 32 582 that it prints",), "One rung"),
        (rungs(32000.0, 52000.0), ("The top, 52 000 tokens/s",), "remember"),
        (rungs(100.0, 100.5), ("Not resolved by these data: rung 1.",), "Slower"),
        (rungs(100.0, 200.0, small=True), ("All together: 2.0×", "This run is small"), "published"),
        (rungs(100.0), ("One rung is no ladder.",), "All together"),
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
                "8 sequences: out of memory; the ledger asks for 8.00 GiB.",
                "ledger and peak differ by at most 2.4 %",
            ),
            "slower",
        ),
        (sizes([10.0, 95.0, 98.0, 100.0], FULL), ("From 2 sequences on",), "out of memory"),
        (sizes([10.0, 90.0, 100.0]), ("From 4 sequences on",), ("ledger", "out of memory")),
        (sizes([10.0, 100.0, 80.0, 99.0]), ("From 8 sequences on",), "From 2"),
        (sizes([10.0, 100.0, 80.0]), ("The best rate, 100 tokens/s, has 2 sequences; more are slower.",), "From"),
        (sizes([NAN, NAN]), ("1 sequences: out of memory; the ledger asks for 1.00 GiB.",), ("From", "differ")),
    ],
)
def test_batches(made, parts, unsaid):
    said(runs.explain_batches(made), parts, unsaid)


@pytest.mark.parametrize("small", [True, False])
def test_speed_says_both_and_once_what_small_means(small):
    made = sizes([10.0, 90.0, 100.0])
    made.attrs["small"] = small
    text = runs.explain_speed(rungs(100.0, 200.0, small=small), made, 32582)
    said(text, ("All together: 2.0×", "From 4 sequences on"), "nan")
    assert text.data.count("This run is small") == small


def accumulated(*rows):
    columns = ["strategy", "step_ms_every", "saved_ms", "resolved", "gradients_mib_every", "gradients_mib_last"]
    columns += ["peak_mib_every", "peak_mib_last"]
    return table(*rows, columns=columns, times=4)


@pytest.mark.parametrize(
    ("row", "parts", "unsaid"),
    [
        (
            ("ddp", 400.0, 20.0, True, 6000, 1500, 100, 100),
            ("DDP: one exchange for 4 micro-batches sends 4.0× fewer", "the step takes 20.0 ms less (5.0 %)."),
            ("more", "not resolved", "price"),
        ),
        (
            ("fsdp_full", 400.0, -20.0, True, 6000, 1500, 100, 850),
            ("FSDP full: ", "takes 20.0 ms **more** (5.0 %)", "the price: 750 MiB more at the peak"),
            ("less", "not resolved"),
        ),
        (
            ("ddp", 400.0, 20.0, False, 4500, 1500, NAN, NAN),
            ("3.0× fewer", "is faster is not resolved by these data."),
            ("the step takes", "price"),
        ),
    ],
)
def test_accumulation(row, parts, unsaid):
    said(runs.explain_accumulation(accumulated(row)), parts, unsaid)
    both = runs.explain_accumulation(accumulated(row, ("fsdp_grad", 100.0, 10.0, True, 6, 1, 1, 1)))
    said(both, (*parts, "FSDP gradient-only: one exchange for 4 micro-batches sends 6.0×", "10.0 ms less (10 %)"), ())


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
                "**DDP**: of 10.0 ms communication exposed are 1.20 ms by the trace, 3.00 ms by the step wi",
                "800 µs by hooks; the methods agree to 2.5 points.",
            ),
            ("apart", FREE),
        ),
        (
            hidden(63, slowed=5.0),
            ("**63 points apart**; in the trace computing takes 5.00 ms longer than alone.", FREE, "seen under DDP"),
            ("agree", "idling"),
        ),
        (hidden(63, idle=20.0), ("in the trace idling 20.0 ms more.",), (FREE, "computing takes")),
        (hidden(63, slowed=5.0, idle=20.0), ("longer than alone and idling 20.0 ms more",), "agree"),
        (hidden(63), ("**63 points apart**.",), ("in the trace", "agree")),
        (hidden(63, slowed=NAN, idle=NAN), ("**63 points apart**.",), ("in the trace", FREE)),
        (hidden(63, steps=-1.0), ("0 µs by the step without it",), "agree"),
        (hidden(1).iloc[:0], ("Nothing was communicated.",), "exposed"),
    ],
)
def test_overlap(made, parts, unsaid):
    said(runs.explain_overlap(made), parts, unsaid)
