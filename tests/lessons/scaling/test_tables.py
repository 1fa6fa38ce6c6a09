"""Tables and sentences of lab 13 on made runs in which a claim holds, and in which it does not."""

import pytest
from made import said
from made_scaling import accuracy_run, communication_run, epochs_run, knobs_run, messages_run

from labkit.tables.targets import OPEN
from labkit.theory.images import SAID
from lessons import scaling


def test_an_ideal_run_scales_ideally(tmp_path):
    run = epochs_run(tmp_path / "run", step_ms=0.0)
    table = scaling.scaling(run)
    # 50 000 images do not divide into whole steps alike everywhere, and a rate counts the images that were trained
    assert table["efficiency"].between(0.99, 1.01).all()
    assert set(table["law"]) == {"strong", "weak"}
    strong = table[table["law"] == "strong"]
    assert (strong["ranks"] * strong["gpu_batch"]).tolist() == [512, 512, 512]
    fits = scaling.laws(table)
    assert fits["share"].abs().max() < 0.01
    said(scaling.explain_scaling(table, fits), ("4 GPUs reach 4.0×", "A rank's steps divide by the GPUs"), "do not")


def test_what_does_not_divide_is_found(tmp_path):
    table = scaling.scaling(epochs_run(tmp_path / "run", step_ms=0.0, serial=0.2))
    fits = scaling.laws(table).set_index("law")
    assert fits.loc["strong", "share"] == pytest.approx(0.2, abs=0.01)
    assert fits.loc["strong", "least"] < fits.loc["strong", "share"] < fits.loc["strong", "most"]
    said(scaling.explain_scaling(table, scaling.laws(table)), "no number of GPUs exceeds")


def test_more_gpus_may_be_slower(tmp_path):
    table = scaling.scaling(epochs_run(tmp_path / "run", step_ms=0.0, serial=3.0))
    said(scaling.explain_scaling(table, scaling.laws(table)), "**More GPUs are slower than one**", "no number of GPUs")


def test_a_missing_sampler_shows_in_the_steps(tmp_path):
    table = scaling.scaling(epochs_run(tmp_path / "run", doubled=True))
    said(scaling.explain_scaling(table, scaling.laws(table)), "**A rank's steps do not divide by the GPUs**")


def test_one_gpu_scales_to_nothing(tmp_path):
    table = scaling.scaling(epochs_run(tmp_path / "run", gpus=1))
    assert scaling.laws(table).empty
    said(scaling.explain_scaling(table, scaling.laws(table)), "two GPUs at least")


def test_any_number_of_gpus(tmp_path):
    run = epochs_run(tmp_path / "run", gpus=3)
    assert sorted(set(scaling.epochs(run)["ranks"])) == [1, 2, 3]
    assert scaling.scaling(run)["efficiency"].notna().all()


def test_parts_add_up_or_say_so(tmp_path):
    good, bad = (scaling.parts(epochs_run(tmp_path / str(rest), rest=rest)) for rest in (0.01, 0.1))
    assert good["rest_share"].to_numpy() == pytest.approx(0.01)
    said(scaling.explain_parts(good), "explain every epoch to within 1.0 %", "not explained")
    said(scaling.explain_parts(bad), "**10 % of an epoch is not explained**")
    total = sum(bad[f"{part}_s"] for part in scaling.PARTS)
    assert total.to_numpy() == pytest.approx(bad["seconds"].to_numpy())


def test_what_backward_hides_comes_from_single_steps(tmp_path):
    exchanged = scaling.exchange(communication_run(tmp_path / "steps", hooks=0.25))
    table = scaling.parts(epochs_run(tmp_path / "run"), exchanged)
    row = table[(table["ranks"] == 4) & (table["gpu_batch"] == 32) & (table["loader"] == "device")].iloc[0]
    assert row["hidden_s"] == pytest.approx(row["steps"] * 0.75e-3)
    assert table.loc[table["ranks"] == 1, "hidden_s"].isna().all()


def test_every_footer_names_the_images(tmp_path):
    run = epochs_run(tmp_path / "run")
    for table in (scaling.epochs(run), scaling.parts(run), scaling.scaling(run)):
        assert SAID["glyphs"] in table.attrs["source"]


def test_three_ways_agree_or_say_why_not(tmp_path):
    agree, apart = (communication_run(tmp_path / str(trace), trace=trace) for trace in (0.6, 3.0))
    table = scaling.exchange(agree)
    four = table[table["ranks"] == 4].iloc[0]
    assert [four[f"{way}_share"] for way in ("steps", "trace", "hooks")] == pytest.approx([0.05, 0.06, 0.05])
    assert four["apart_points"] == pytest.approx(1.0)
    assert table.loc[table["ranks"] == 2, "trace_ms"].isna().all(), "only all ranks are traced"
    assert four["bus_gb_per_s"] == pytest.approx(1.5 * 4 * 11_173_962 / 1e-3 / 1e9)
    said(sentences(agree), ("agree within 1.0 points", "one process copies the model"), "differ by")
    parts = ("**The three ways differ by 25 points**", "the trace 30 %", "the profiler slows")
    said(sentences(apart), parts, "`no_sync` also")


def sentences(run):
    import pandas as pd

    table = scaling.exchange(run)
    lines = pd.DataFrame({"collective": ["all-reduce"], "backend": ["nccl"], "ranks": [4], "alpha_us": [20.0]})
    lines["beta_gb_per_s"] = 1.5 * 4 * 11_173_962 / 0.94e-3 / 1e9
    lines.attrs = {"source": "made", "small": False}
    return scaling.explain_exchange(table, scaling.beside_line(table, lines), scaling.data_parallel(run))


def test_a_line_promises_what_the_all_reduces_take(tmp_path):
    said(sentences(communication_run(tmp_path / "run")), "what lab 09's line promises", "than promised")


def test_data_parallel_may_be_faster_too(tmp_path):
    said(sentences(communication_run(tmp_path / "run", dp=0.5)), "DataParallel's step takes 0.50× DDP's.", "copies")


def test_messages_besides_gradients(tmp_path):
    table = scaling.messages(messages_run(tmp_path / "run"))
    parts = ("2 × broadcast (37.7 KiB)", "The second step calls 2 more", "Under `no_sync` no gradient is sent")
    said(scaling.explain_messages(table), parts)
    said(scaling.explain_messages(scaling.messages(messages_run(tmp_path / "loud", quiet=False))), "**`no_sync` sends")
    orders = scaling.orders(messages_run(tmp_path / "orders"))
    assert (orders["with set_epoch"].nunique(), orders["without set_epoch"].nunique()) == (3, 1)


PERCENT = {
    "reference": 80.0,
    "one_gpu": 70.0,
    "large": 70.2,
    "no_warm_up": 60.0,
    "unscaled": 50.0,
    "same_order": 70.0,
    "sync_bn": 70.4,
}


def test_accuracies_differ_or_are_not_resolved(tmp_path):
    table = scaling.accuracy(accuracy_run(tmp_path / "run", PERCENT))
    apart = scaling.differences(table).set_index("variant")
    assert table.set_index("variant").loc["large", ["std_test_percent", "steps"]].tolist() == pytest.approx([0.5, 72])
    assert apart.loc["unscaled", ["points", "resolved"]].tolist() == [pytest.approx(-20.2), True]
    assert not apart.loc["sync_bn", "resolved"]
    text = scaling.explain_accuracy(table, scaling.differences(table))
    said(text, ("**20.2 ± 0.8 points fewer**", "**Not resolved by these data**", "no claim", "4.0× as fast")[:2])
    said(text, ("nothing here is a claim about CIFAR-10", "trains 4.0× as fast"), "guessing")
    some = accuracy_run(tmp_path / "some", PERCENT | {"large": 10.0})
    table = scaling.accuracy(some)
    assert table.set_index("variant")["at_chance"].to_dict() == {**dict.fromkeys(PERCENT, 0), "large": 3}
    said(scaling.explain_accuracy(table, scaling.differences(table)), "at chance in 3 of 3 seeds")
    low = accuracy_run(tmp_path / "low", dict.fromkeys(PERCENT, 10.0), seeds=(0,))
    table = scaling.accuracy(low)
    said(scaling.explain_accuracy(table, scaling.differences(table)), ("guessing", "one seed"))
    alone = scaling.accuracy(accuracy_run(tmp_path / "one", PERCENT, gpus=1))
    assert alone["variant"].tolist() == ["reference", "one_gpu"]
    said(scaling.explain_accuracy(alone, scaling.differences(alone)), "80.0 ± 0.5 %", "as fast")


def test_rungs_and_their_share_of_the_roof(tmp_path):
    table = scaling.ladder(knobs_run(tmp_path / "run"))
    assert table["times_first"].iloc[-1] == pytest.approx(5.0)
    assert table["batch"].tolist() == [512] * 5 + [2048] * 2
    last = table.iloc[-1]
    assert last["roof_share"] == pytest.approx(60e3 * 3.329e9 / 989.5e12, rel=0.01)
    said(scaling.explain_roof(table), ("5.0×", "leave most of the matrix units idle"))
    fast = scaling.ladder(
        knobs_run(tmp_path / "fast", tuple(rate * 3 for rate in (12e3, 20e3, 21e3, 50e3, 60e3, 60e3, 60e3)))
    )
    said(scaling.explain_roof(fast), "uses 61 % of", "idle")


def test_targets_are_met_missed_or_open(tmp_path):
    def efficiency(run):
        card = scaling.scorecard(run).set_index("target")
        met = card.loc["efficiency at 2 GPUs, 512 images per GPU, device loader", "met"]
        return met if met == OPEN else bool(met)

    assert efficiency(epochs_run(tmp_path / "good", step_ms=0.1)) is True
    assert efficiency(epochs_run(tmp_path / "bad", serial=0.5)) is False
    assert efficiency(epochs_run(tmp_path / "near", step_ms=0.0, serial=0.052)) == OPEN
    rest = scaling.scorecard(epochs_run(tmp_path / "rest", rest=0.05)).set_index("target")["met"]
    assert not rest["largest part of an epoch that nothing explains"]
    card = scaling.scorecard(communication_run(tmp_path / "steps", trace=3.0)).set_index("target")["met"]
    assert card.tolist() == [False, True]
    assert scaling.scorecard(epochs_run(tmp_path / "cpu", device="cpu", gpus=2)).empty
    named = {one.what for one in scaling.EXPECTED}
    assert named <= {*scaling.scorecard(epochs_run(tmp_path / "all"))["target"], *card.index}
