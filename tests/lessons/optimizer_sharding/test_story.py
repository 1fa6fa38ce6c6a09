"""Each verdict of lab 11 follows its table: said where the claim holds, its opposite where it does not."""

import pandas as pd
import pytest
from made import table
from made_optimizer_sharding import memory_run, steps_run

from labkit.provenance import made_from
from labkit.tables.published import published
from lessons import optimizer_sharding as lab
from lessons.optimizer_sharding import story

NAN = float("nan")


def saved(fused, foreach, measured=True):
    names = ["kernel", "way", "states", "temporary", "predicted", "measured", "peak"]
    rows = [("fused", "sharded", 1.0, 0.0, fused), ("foreach", "sharded", 1.0, 1.0, foreach)]
    return table(*((*row, row[-1] if measured else NAN, 9.0) for row in rows), columns=names)


@pytest.mark.parametrize(
    ("made", "part"),
    [
        (saved(1000, 1800), "**With one kernel, ours saves 1.05 GB of the peak; with many, 1.89 GB.**"),
        (saved(1000, 1800, measured=False), "ours should save 1.05 GB"),
        (saved(-5, 10), "saves nothing"),
        (saved(100, 180).iloc[:1], "did not measure"),
    ],
)
def test_what_is_saved(made, part):
    assert part in lab.what_is_saved(made).data


def test_torchs_saving_stands_beside_ours():
    made = saved(1000, 1800)
    torchs = made.assign(way="zero_redundancy", measured=[990.0, 1400.0])
    said = lab.what_is_saved(made_from(pd.concat([torchs, made], ignore_index=True), made)).data
    assert "**With one kernel, every sharded optimizer saves at least 1.04 GB of the peak.**" in said
    assert "With many, torch's saves 1.47 GB, ours 1.89 GB" in said
    apart = made_from(pd.concat([torchs.assign(measured=500.0), made], ignore_index=True), made)
    assert "**With one kernel, ours saves 1.05 GB" in lab.what_is_saved(apart).data


@pytest.mark.parametrize(
    ("peak", "unexplained", "error", "part"),
    [
        (100.0, 0.02, 0.0, "✔ The formulas explain every peak to within 2.0 %"),
        (100.0, -0.2, 0.0, "✘ **The formulas leave 20 %"),
        (NAN, NAN, 0.0, "✔ What the ranks' tensors hold"),
        (NAN, NAN, 0.07, "✘ **What ranks hold differs from the formulas by up to 7.0 %"),
    ],
)
def test_ledger(peak, unexplained, error, part):
    made = table((peak, unexplained, error), columns=["peak", "unexplained_share", "counted_error"])
    assert part in lab.ledger_holds(made).data


def shares(**excess):
    return table(*((rule.replace("_", " "), more) for rule, more in excess.items()), columns=["rule", "excess"])


def test_shares():
    owned = table(("sharded", 0.5, 0.0), columns=["way", "fullest", "excess"])
    said = lab.even_shares(shares(by_number=0.6, whole_parameters=0.5, by_elements=0.0), owned).data
    assert "**Cut *by elements*, every rank" in said and "*by number*, a rank may have 60 % more" in said
    even = lab.even_shares(shares(by_number=0.01, by_elements=0.0), owned).data
    assert "*by number* and *by elements*" in even and "more" not in even
    assert "No rule is ever even" in lab.even_shares(shares(by_number=0.6), owned).data


def cases(*rows):
    return table(*rows, columns=["optimizer", "case", "error", "drift", "equal"])


def test_same_training():
    right = ("adamw", "plain", 0.0, 0.0, True)
    assert "✔ **In all 2 cases the weights are equal bit by bit" in lab.same_training(cases(right, right)).data
    near = lab.same_training(cases(right, ("adamw", "tied", 3e-7, 0.0, True))).data
    assert "✔" in near and "0.30 millionths" in near
    assert "✘" in lab.same_training(cases(right, ("sgd", "tied", 0.2, 0.0, False))).data
    assert "sgd (tied)" in lab.same_training(cases(right, ("sgd", "tied", 0.2, 0.0, False))).data


def times(ours=20.0, step=125.0, torchs=40.0, spread=0.5):
    names = ["optimizer", "kernel", "way", "step_ms", "spread_step_ms", "update_ms", "spread_update_ms", "exposed_ms"]
    names += ["least_sent_ms"]
    rows = [
        ("unsharded", 140.0, 36.0, 0.0),
        ("zero_redundancy", 146.0, torchs + 1, 20.0),
        ("zero_buckets", 145.0, torchs, 20.0),
        ("sharded", step, ours, 2.0),
    ]
    made = [("adamw", "foreach", way, whole, spread, update, spread, more, 8.0) for way, whole, update, more in rows]
    return table(*made, columns=names)


@pytest.mark.parametrize(
    ("made", "part", "unsaid"),
    [
        (
            times(),
            "**Our update takes 20.0 ms**, 0.50× that of torch's faster one. Our whole step, timed apart, is shorter",
            "noise",
        ),
        (times(ours=39.8), "as long as torch's within noise", "×"),
        (times(ours=60.0), "1.5× that of torch's", "within"),
        (times(step=150.0), "timed apart, is **longer** than", "shorter"),
        (times(step=139.5), "as long as the unsharded one, within noise", "shorter"),
        (times().iloc[3:], "nothing to compare with", "ms"),
    ],
)
def test_update_times(made, part, unsaid):
    sentence = lab.update_times(made).data.partition("<details>")[0]
    assert part in sentence and unsaid not in sentence


def test_times_of_cpus_are_not_compared():
    made = times()
    said = lab.update_times(made_from(made, made, on_cpu=True)).data
    assert "Here our update takes 20.0 ms. CPU processes share cores" in said and "torch's faster" not in said
    assert "| AdamW | many kernels | unsharded | 36.0 | 0.500 | – | 140 |" in said


def test_update_times_with_one_fused_kernel_stand_beside_those_with_many():
    made = times()
    fused = made[made["way"].isin(["unsharded", "sharded"])].assign(kernel="fused", update_ms=[20.0, 18.0])
    said = lab.update_times(made_from(pd.concat([made, fused], ignore_index=True), made)).data
    assert "With one fused kernel the update takes 0.90× the unsharded one's." in said
    near = fused.assign(update_ms=[20.0, 19.1])
    said = lab.update_times(made_from(pd.concat([made, near], ignore_index=True), made)).data
    assert "With one fused kernel the update takes as long as the unsharded one, within noise." in said
    assert "hidden" not in said
    bare = fused.assign(exposed_ms=[0.0, 9.0])
    said = lab.update_times(made_from(pd.concat([made, bare], ignore_index=True), made)).data
    assert "Sending adds no less to it than the links' rate asks for: hardly any of it is hidden." in said


def test_beside_zero():
    names = ["stage", "held_gb", "sent_gb"]
    more = table(("ours", 22.0, 12.0), ("zero1", 22.0, 8.0), columns=names, ranks=2)
    assert "**Ours holds as much as ZeRO-1 and sends 1.5× its bytes.**" in lab.beside_zero(more).data
    none = table(("ours", 24.0, 0.0), ("zero1", 22.0, 0.0), columns=names, ranks=2)
    assert "another amount than ZeRO-1 and sends as much" in lab.beside_zero(none).data


def test_whose_peaks():
    peaks = lab.report_peaks(published("optimizer_sharding"))
    assert "The bytes of 2.7b fit" in lab.whose_peaks(peaks).data
    other = lab.whose_peaks(peaks.assign(printed_gb=[32.0, 24.0, 32.0, 24.0])).data
    assert "The bytes of XL fit" in other
    assert "No model's bytes" in lab.whose_peaks(peaks.assign(printed_gb=90.0)).data


def test_one_minute_says_what_each_run_shows(tmp_path):
    runs = {"memory": memory_run(tmp_path / "memory"), "steps": steps_run(tmp_path / "steps")}
    rules = story._RULES
    shown = [rule(runs) for rule in list(rules.values())[:3]]
    assert "less per rank" in shown[0] and "50 %" in shown[1] and "1.60 of an update's 20.0 ms" in shown[2]
