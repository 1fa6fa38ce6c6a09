"""Each sentence of lab 10 follows its table: said where the claim holds, its opposite where it does not."""

import pytest
from made import said, table
from made_ddp_from_scratch import buckets_run, equality_run, implementations_run

from labkit.labs import ddp_from_scratch as ddp
from labkit.labs.ddp_from_scratch.theory import Overhead

SMALL = "This run is small"
CPU = {
    "device": "cpu",
    "size": "small",
    "hidden": 64,
    "inner": 256,
    "layers": 3,
    "heads": 4,
    "vocabulary": 500,
    "sequence": 32,
    "bucket_mb": 0.25,
}


def told(run):
    return ddp.explain_steps(ddp.implementations(run), ddp.sending(run))


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            {},
            (
                "A step that sends nothing takes 90.0 ms. Sending adds to it: naive 32.0 ms (26 % of its step), "
                "flat 28.0",
                "**One call is not faster than many that begin early**: flat sends when backward is over, and takes "
                "18.0",
                "there save: flat 12 %, overlapped 69 %, bucketed 78 % and torch's DDP 81 %.",
                "Bucketed takes 1.01 × torch's DDP: at most the 1.03 × asked for.",
                "More memory at the peak than without sending: flat 7.42 GiB.",
            ),
            ("resolved", "one call beats", "**nothing**", "Not measured", "more than", "apart from naive", SMALL),
        ),
        (
            {"step_ms": {"flat": 122.1, "bucketed": 121.9}},
            ("there save: overlapped 69 % and torch's DDP 81 %. Not told apart from naive: flat and bucketed.",),
            ("save: flat", "bucketed 0"),
        ),
        (
            {"strategies": ("none", "naive", "flat"), "step_ms": {"flat": 122.1}},
            ("Not told apart from naive: flat.",),
            ("there save",),
        ),
        (
            {"step_ms": {"overlapped": 130.0, "bucketed": 100.0}},
            (
                "**Here one call beats many that begin early**: flat is 12.0 ms faster than overlapped.",
                "overlapped **nothing**",
                "Bucketed takes 1.04 × torch's DDP: **more than** the 1.03 × asked for.",
            ),
            ("One call is not", "at most"),
        ),
        (
            {"step_ms": {"overlapped": 118.1, "bucketed": 96.05}},
            (
                "Whether flat's one call or overlapped's many are faster is not resolved by these data.",
                "1.00 × torch's DDP, not told apart from it by these data: at most",
            ),
            ("begin early**",),
        ),
        ({"step_ms": {"bucketed": 90.05}}, ("Not resolved from it: bucketed.",), ("bucketed 0.05",)),
        (
            {"step_ms": dict.fromkeys(("naive", "flat", "overlapped", "bucketed", "ddp"), 90.0)},
            ("What sending adds is not resolved by these data.",),
            ("Sending adds to it", "save:"),
        ),
        ({"failed": ("flat",)}, ("Not measured: flat (out of memory).",), ("One call", "one call beats", "save: flat")),
        ({"strategies": ("naive", "flat")}, ("",), ("sends nothing", "torch", "begin early", "save:", "More memory")),
        (CPU, ("× torch's DDP.", SMALL), ("asked for", "memory than", "needs more memory")),
    ],
)
def test_steps(tmp_path, made, parts, unsaid):
    said(told(implementations_run(tmp_path / "run", **made)), parts, *unsaid)


def test_memory_that_nobody_needs(tmp_path):
    run = implementations_run(tmp_path / "run", strategies=("none", "naive", "ddp"))
    said(told(run), "None needs more memory.", "More memory")


def test_overlap(tmp_path):
    asked = "Every strategy makes as many calls, of as many bytes, as was asked for."
    early = "Called while gradients were still to come: overlapped 434 of 435, bucketed"
    late = "**Only when all were there**: naive and flat; nothing of theirs can be hidden."
    said(ddp.explain_overlap(ddp.overlap(implementations_run(tmp_path / "right"))), (early, late, asked), "Not what")
    wrong = implementations_run(tmp_path / "wrong", extra_call=1, strategies=("naive", "overlapped"))
    part = "**Not what was asked for**: naive (436 calls, 435 due) and overlapped (436 calls, 435 due)."
    said(ddp.explain_overlap(ddp.overlap(wrong)), part, asked)
    none = implementations_run(tmp_path / "none", strategies=("none",))
    said(ddp.explain_overlap(ddp.overlap(none)), "Nothing was sent.", asked, "Called", "Only when")
    only = implementations_run(tmp_path / "only", strategies=("overlapped",))
    said(ddp.explain_overlap(ddp.overlap(only)), "Called while", "Only when")


def test_sending(tmp_path):
    parts = ("Naive waits 32.0 ms for its gradients: 250 GB/s, 52 % of what the links allow.", "saves weigh more.")
    said(told(implementations_run(tmp_path / "run")), parts, "copies weigh more", SMALL)
    slow = implementations_run(tmp_path / "slow", step_ms={"flat": 150.0})
    said(told(slow), "the copies weigh more.", "saves weigh more")
    said(told(implementations_run(tmp_path / "cpu", **CPU)), ("GB/s.", SMALL), "links allow")
    said(told(implementations_run(tmp_path / "none", strategies=("none",))), "sends nothing", "for its gradients")


def explained(folder, **made):
    run = buckets_run(folder, **made)
    return ddp.explain_buckets(ddp.buckets(run), ddp.overhead(run))


def test_buckets_of_a_sweep_that_follows_the_formula(tmp_path):
    parts = (
        "Buckets of 100 MB are fastest",
        "n·o + s/(n·w) with o = 20.0 µs a call and w = 100 GB/s misses no size",
        "Its best mean bucket is 121 MiB, **where the fastest were measured**: 115 MiB; 39.3 and 254 MiB are",
        "The slowest, 8000 MB, takes",
        "× torch's DDP: at most the 1.03 × asked for.",
    )
    said(explained(tmp_path / "run"), parts, "resolved", "not where", "alone", SMALL)


def test_buckets_where_the_formula_sees_one_term(tmp_path):
    parts = ("the fit sees o = 20.0 µs a call alone: **by it no size is best.**", "Buckets of 8000 MB are fastest")
    said(explained(tmp_path / "calls", line=Overhead(0.096, 2e-5, float("inf"))), parts, "measured", "w =")
    part = "the fit sees w = 100 GB/s alone: **by it no size is best.**"
    said(explained(tmp_path / "bytes", line=Overhead(0.096, 0.0, 1e11)), part, "o =", "measured")


def test_buckets_that_are_all_alike(tmp_path):
    parts = ("not told apart from that", "**the best is not resolved by these data.**", "to the sweep's end")
    said(explained(tmp_path / "run", line=Overhead(0.096, 2e-7, 1e14)), parts, "where", "The slowest")


def test_buckets_slower_than_torch_or_without_it(tmp_path):
    said(explained(tmp_path / "slow", ddp_ms=90.0), "**more than** the 1.03 × asked for.", "at most")
    said(explained(tmp_path / "near", ddp_ms=98.6), "not told apart from it by these data: at most", "more than**")
    said(explained(tmp_path / "alone", others=("none",)), "Buckets of 100 MB are fastest", "torch")
    said(explained(tmp_path / "two", buckets_mb=(10, 100)), "Buckets of 100 MB are fastest", "n·o")
    said(explained(tmp_path / "small", **CPU, buckets_mb=(0.02, 0.1, 0.5, 2)), ("× torch's DDP", SMALL), "asked for")


def test_a_formula_whose_best_size_was_measured_slow(tmp_path):
    run = buckets_run(tmp_path / "run")
    fit = ddp.overhead(run).assign(optimum_mib=900.0)
    part = "900 MiB, **not where the fastest were measured**: 115 MiB;"
    said(ddp.explain_buckets(ddp.buckets(run), fit), part, ", **where")


def test_a_size_that_did_not_fit(tmp_path):
    run = buckets_run(tmp_path / "run")
    rows = ddp.buckets(run)
    rows.loc[rows["bucket_mb"] == 1000, ["status", "step_ms"]] = ["out of memory", float("nan")]
    said(ddp.explain_buckets(rows, ddp.overhead(run)), "1000 MB: out of memory.", "The slowest, 1000")
    rows["status"] = "out of memory"
    said(ddp.explain_buckets(rows, ddp.overhead(run)), "No bucket size was measured.", "fastest")


def test_equality(tmp_path):
    right = ddp.equality(equality_run(tmp_path / "right"))
    part = "All 4 strategies on 2 ranks do in all 14 cases what one process does. The largest error in float32 is 1e-07"
    said(ddp.explain_equality(right), part, "Not as")
    wrong = right.assign(equal=(right["case"] != "tied") | (right["strategy"] != "flat"))
    wrong.attrs = right.attrs
    said(ddp.explain_equality(wrong), "**Not as one process**: flat (tied).", "All 4")
    apart = ddp.equality(equality_run(tmp_path / "apart", apart=1e-3))
    said(ddp.explain_equality(apart), "**Not as one process**: naive (plain), flat (plain)", "All 4")


def test_a_table_keeps_what_it_is_of():
    made = table(columns=["strategy", "collectives", "before_last_gradient", "due", "equal"], small=True)
    said(ddp.explain_overlap(made), ("Nothing was sent.", SMALL))
