"""Each sentence of lab 10 follows its table: said where it is true, its opposite where that is true."""

import pytest
from made import said
from made_ddp_from_scratch import buckets_run, implementations_run

from lessons import ddp_from_scratch as ddp
from lessons.ddp_from_scratch.theory import Overhead

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


def steps_text(run):
    return ddp.explain_steps(ddp.implementations(run), ddp.sending(run))


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            {},
            (
                "longer than a step that sends nothing: naive, flat, overlapped, bucketed and torch's DDP.",
                "Naive adds most, 32.0 ms.",
                "Many calls during backward beat one call after it**: overlapped is 18.0 ms faster than flat.",
                "Bucketed takes 1.010 × the step of torch's DDP, ± 0.00",
                "reaches the goal, at most 1.03 ×",
                "naive sends at 250 GB/s",
                "the links allow 478 GB/s",
                "Flat needs most extra memory, 7.42 GiB.",
            ),
            ("One call after backward", "misses", "open", "Not measured", SMALL),
        ),
        (
            {"step_ms": {"overlapped": 130.0, "bucketed": 100.0}},
            ("One call after backward beats many calls", "**misses** the goal"),
            ("reaches",),
        ),
        ({"step_ms": {"overlapped": 118.1}}, ("differ by no more than noise.",), ("beat many", "beats")),
        ({"step_ms": {"bucketed": 90.05}}, ("The others differ from it by no more than noise: bucketed.",), ()),
        (
            {"step_ms": dict.fromkeys(("naive", "flat", "overlapped", "bucketed", "ddp"), 90.0)},
            ("Beyond noise, no strategy takes longer",),
            ("adds most",),
        ),
        (
            {"step_ms": {"bucketed": 100}, "noise": (-0.2, 0.2, 0.0, 0.1, -0.1)},
            ("whether it reaches the goal, at most 1.03 ×, is open.",),
            ("misses",),
        ),
        ({"failed": ("flat",)}, ("Not measured: flat (out of memory).",), ("beats", "beat one")),
        ({"strategies": ("naive", "flat")}, ("GB/s",), ("sends nothing", "torch", "extra memory")),
        ({"strategies": ("none", "naive", "ddp")}, ("No strategy needs more memory",), ("needs most",)),
        (CPU, ("× the step of torch's DDP", SMALL), ("goal", "extra memory", "links allow")),
    ],
)
def test_steps(tmp_path, made, parts, unsaid):
    said(steps_text(implementations_run(tmp_path / "run", **made)), parts, *unsaid)


@pytest.mark.parametrize(
    ("step_ms", "noise", "part"),
    [
        ({"none": 90, "naive": 130, "overlapped": 120, "bucketed": 100}, 0, "Backward hides 30.0 ms of it, 75 %"),
        (
            {"none": 90, "naive": 130, "overlapped": 135, "bucketed": 140},
            0,
            "hides nothing of it**: overlapped is 5.00",
        ),
        ({"none": 90, "naive": 130, "overlapped": 115, "bucketed": 120}, 10, "cannot say how much of it backward"),
        ({"none": 90, "naive": 95, "overlapped": 80, "bucketed": 85}, 10, "Naive adds no time beyond noise"),
    ],
)
def test_how_much_backward_hides(tmp_path, step_ms, noise, part):
    table = ddp.implementations(implementations_run(tmp_path / "run"))
    table["step_ms"] = table["strategy"].map(step_ms).fillna(100)
    table["spread_step_ms"], table["longer_ms"] = noise, table["step_ms"] - step_ms["none"]
    table["spread_longer_ms"] = 2 * noise
    said(ddp.explain_steps(table, table.iloc[:0]), part)


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            {},
            (
                "Buckets of 100 MB are fastest",
                "Slower beyond noise: ",
                "o = 20.0 µs per call and w = 100 GB/s",
                "a mean bucket of 121 MiB is best, **which is among** the sizes measured fastest (115 MiB)",
                "reaches the goal",
            ),
            ("cannot confirm", "only", SMALL),
        ),
        (
            {"line": Overhead(0.096, 2e-5, float("inf"))},
            ("finds only o = 20.0 µs per call", "no best size", "Buckets of 8000 MB are fastest"),
            ("w =",),
        ),
        ({"line": Overhead(0.096, 0.0, 1e11)}, ("finds only w = 100 GB/s", "no best size"), ("o =",)),
        (
            {"line": Overhead(0.096, 2e-7, 1e14)},
            ("no other size is slower beyond noise", "are equal within noise"),
            ("which is",),
        ),
        ({"ddp_ms": 90.0}, ("**misses** the goal",), ("reaches",)),
        ({"others": ("none",)}, ("Buckets of 100 MB are fastest",), ("torch",)),
        ({"buckets_mb": (10, 100)}, ("Buckets of 100 MB are fastest",), ("n·o",)),
        (CPU | {"buckets_mb": (0.02, 0.1, 0.5, 2)}, ("the step of torch's DDP", SMALL), ("goal",)),
    ],
)
def test_buckets(tmp_path, made, parts, unsaid):
    run = buckets_run(tmp_path / "run", **made)
    said(ddp.explain_buckets(ddp.buckets(run), ddp.overhead(run)), parts, *unsaid)


def test_a_formula_whose_best_size_was_measured_slow(tmp_path):
    run = buckets_run(tmp_path / "run")
    fit = ddp.overhead(run).assign(optimum_mib=900.0)
    said(ddp.explain_buckets(ddp.buckets(run), fit), "900 MiB is best, **which is not among**", "which is among")


def test_a_size_that_did_not_fit(tmp_path):
    run = buckets_run(tmp_path / "run")
    rows = ddp.buckets(run)
    rows.loc[rows["bucket_mb"] == 1000, ["status", "step_ms"]] = ["out of memory", float("nan")]
    said(ddp.explain_buckets(rows, ddp.overhead(run)), "Buckets of 1000 MB: out of memory.", "noise: 1000")
    rows["status"] = "out of memory"
    said(ddp.explain_buckets(rows, ddp.overhead(run)), "No bucket size was measured.", "fastest")
