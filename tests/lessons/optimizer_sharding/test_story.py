"""Each sentence of lab 11 follows its table: said where the claim holds, its opposite where it does not."""

import pytest
from made import said, table

from lessons import optimizer_sharding

NAN = float("nan")
SMALL = "This run is small"


def held(unexplained=0.02, error=0.0, peak=100.0, **attrs):
    names = ["kernel", "way", "moment", "peak", "unexplained_share", "counted_error"]
    return table(("foreach", "sharded", "after update", peak, unexplained, error), columns=names, **attrs)


def saved(*rows):
    return table(*rows, columns=["kernel", "way", "states", "temporary", "predicted", "measured", "peak"])


OURS = ("foreach", "sharded", 100, 80, 180, 175, 300.0)
TORCHS = ("foreach", "zero_redundancy", 100, 50, 150, 145, 330.0)


@pytest.mark.parametrize(
    ("made", "less", "parts", "unsaid"),
    [
        (
            held(),
            saved(OURS, TORCHS),
            (
                "explains every peak to within 2.0 % (sharded, foreach, in the update)",
                "ours saves 175 MiB of the peak",
                "100 MiB are states, **80.0 MiB are the square roots",
                "Our peak is at most",
            ),
            (SMALL,),
        ),
        (
            held(0.2),
            saved(OURS, (*TORCHS[:-1], 250.0)),
            ("**20 % of a peak is not explained**", "**Our peak is up to 1.20× that of"),
            ("Our peak is at most", "explains every"),
        ),
        (
            held(),
            saved(("fused", "sharded", 100, 0, 100, 98, 300)),
            ("With fused kernels ours saves 98.0 MiB of the peak; by formula 100 MiB, which are states.",),
            ("square roots", "torch's"),
        ),
        (held(), saved(("fused", "sharded", 100, 0, 60, 58, 300)), ("fullest moment is then another one",), "states."),
        (
            held(),
            saved(("fused", "sharded", 100, 0, 100, -5, 300)),
            ("**With fused kernels sharding saves nothing.**",),
            "which are",
        ),
        (
            held(NAN, peak=NAN, small=True),
            saved((*OURS[:-2], NAN, NAN)),
            ("No allocator counts a CPU's memory", "should save 180 MiB", SMALL),
            ("not explained", "Our peak is"),
        ),
        (held(NAN, 0.07, peak=NAN), saved(), ("differ from the formulas by up to 7.0 %",), "No allocator"),
    ],
)
def test_memory(made, less, parts, unsaid):
    said(optimizer_sharding.explain_memory(made, less), parts, unsaid)


def times(ours=20.0, exposed=2.0, step=125.0, spread=0.5, torchs=40.0, **attrs):
    names = [
        "optimizer",
        "kernel",
        "way",
        "step_ms",
        "spread_step_ms",
        "update_ms",
        "spread_update_ms",
        "spread_local_ms",
        "exposed_ms",
        "over_torch",
    ]
    rows = [
        ("unsharded", 140.0, 36.0, 0.0, NAN),
        ("zero_redundancy", 146.0, torchs + 1, 20.0, NAN),
        ("zero_buckets", 145.0, torchs, 20.0, 1.0),
        ("sharded", step, ours, exposed, ours / torchs),
    ]
    return table(
        *(
            ("adamw", "foreach", way, whole, spread, update, spread, spread, more, over)
            for way, whole, update, more, over in rows
        ),
        columns=names,
        **attrs,
    )


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            times(),
            (
                "**AdamW, foreach**: our update takes 20.0 ms, 0.500× torch's in buckets; 2.00 ms of that is sending",
                "A step is 15.0 ms shorter than with whole states.",
            ),
            ("hidden", "longer", SMALL),
        ),
        (times(exposed=0.4), ("its sending is hidden",), "nothing hides"),
        (times(ours=39.8), ("equal to torch's in buckets within noise",), "×"),
        (times(ours=60.0), ("1.50× torch's in buckets",), "within noise"),
        (times(step=150.0), ("10.0 ms **longer** than",), "shorter"),
        (times(step=139.5), ("with and without sharding differ by no more than noise.",), ("shorter", "longer")),
        (times(small=True), (SMALL,), ()),
        (times()[lambda rows: rows["way"] == "sharded"], ("nothing to compare with",), "AdamW"),
    ],
)
def test_steps(made, parts, unsaid):
    said(optimizer_sharding.explain_steps(made), parts, unsaid)


def swept(*updates, spread=0.5):
    names = ["bucket_mib", "update_ms", "spread_update_ms"]
    return table(*((32.0 * 4**i, ms, spread) for i, ms in enumerate(updates)), columns=names)


@pytest.mark.parametrize(
    ("made", "parts", "unsaid"),
    [
        (
            swept(60, 20, 30),
            ("Fastest is 128 MiB: 20.0 ms.", "32 MiB take 3.0× as long: every bucket", "512 MiB take 1.5× as long"),
            ("too", "noise"),
        ),
        (swept(20, 30, 40), ("Fastest is 32 MiB", "No size tried is too small.", "512 MiB take 2.0×"), "a call"),
        (swept(60, 30, 20), ("Fastest is 512 MiB", "No size tried is too large.", "32 MiB take 3.0×"), "little"),
        (
            swept(20.5, 20, 20.9),
            ("32 MiB take the same time", "512 MiB take the same"),
            ("call ", "little"),
        ),
    ],
)
def test_buckets(made, parts, unsaid):
    said(optimizer_sharding.explain_buckets(made), parts, unsaid)


def uneven(number=0.6, whole=0.5, elements=0.0, least=0.5):
    rows = (("by number", number), ("whole parameters", whole), ("by elements", elements))
    names = ["rule", "model", "ranks", "excess", "least_excess"]
    return table(*((rule, "xl", 4, excess, least) for rule, excess in rows), columns=names)


def test_balance():
    said(
        optimizer_sharding.explain_balance(uneven()),
        (
            "**By number**, the fullest rank has up to 60 % more than an equal part (xl, 4 ranks).",
            "**Whole parameters**, the fullest rank has up to 50 % more than an equal part (xl, 4 ranks): one "
            "parameter alone is 50 % more",
            "**By elements**, no rank ever has more than an equal part.",
        ),
        "Counted",
    )
    even = optimizer_sharding.explain_balance(uneven(0.02, 0.2, 0.3, least=0))
    said(
        even,
        (
            "**By number**, no rank ever has more than an equal part and 2.0 %",
            "**By elements**, the fullest rank has up to 30 %",
        ),
        "alone",
    )
    for excess, word in ((0.01, "over"), (-0.01, "under")):
        owned = table(("sharded", (1 + excess) / 2, excess), columns=["way", "fullest", "excess"])
        said(optimizer_sharding.explain_balance(uneven(), owned), (f"1.0 % {word} an equal part",))


def test_stages():
    names = ["stage", "held_gib", "sent_gb"]
    rows = [("ours", 22.0, 12.0), ("zero1", 22.0, 8.0), ("zero2", 18.0, 8.0), ("zero3", 15.0, 12.0)]
    said(
        optimizer_sharding.explain_stages(table(*rows, columns=names)),
        (
            "Ours holds as much as ZeRO-1, and **sends 1.5× as much**",
            "ZeRO-2 shards gradients, too: 4.00 GiB less",
            "ZeRO-3 shards parameters, too: 7.00 GiB less",
        ),
        "saves nothing",
    )
    rows = [("ours", 24.0, 0.0), ("zero1", 22.0, 0.0), ("zero2", 22.0, 0.0), ("zero3", 22.0, 0.0)]
    said(
        optimizer_sharding.explain_stages(table(*rows, columns=names)),
        ("Ours does not hold as much as ZeRO-1, and sends as much.", "ZeRO-2 saves nothing"),
        "shards",
    )


def cases(*rows, **attrs):
    names = ["optimizer", "case", "error", "drift", "asked", "equal"]
    return table(*rows, columns=names, ranks=2, **attrs)


def test_equality():
    right, closure = ("adamw", "plain", 0.0, 0.0, 1.0, True), ("adamw", "closure", 0.0, 0.0, 1.0, True)
    said(
        optimizer_sharding.explain_equality(cases(right, closure)),
        ("In all 2 cases on 2 ranks the weights are equal bit by bit.", "called once per step"),
        "Not",
    )
    near = ("adamw", "tied", 3e-7, 0.0, 1.0, True)
    said(optimizer_sharding.explain_equality(cases(right, near)), ("equal to 3e-07 of a tensor's",), ("bit", "closure"))
    twice = (*closure[:4], 5.0, True)
    said(optimizer_sharding.explain_equality(cases(right, twice)), ("equal bit by bit",), "once")
    wrong = ("sgd", "tied", 0.2, 0.0, 1.0, False)
    said(
        optimizer_sharding.explain_equality(cases(right, wrong, small=True)),
        ("**Not equal to the optimizer that shards nothing**: sgd, tied (2e-01).", SMALL),
        "In all",
    )
