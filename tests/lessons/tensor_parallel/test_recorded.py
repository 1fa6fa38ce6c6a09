"""Lab 16's tables, charts, theory and verdicts of the recorded runs, and of small ones made here."""

import pytest
from figures import checked

from labkit.engine.errors import PlanError
from labkit.engine.recordings import replay
from labkit.launching import launch
from labkit.theory.step_memory import Shape
from lessons import tensor_parallel as tp
from lessons.tensor_parallel.exercises import verdict_of
from lessons.tensor_parallel.explorer import held_bytes, picture
from lessons.tensor_parallel.plan import CASES
from lessons.tensor_parallel.theory import held_elements, kept_bytes, local_part, step_s, width_to_pay


@pytest.fixture(scope="module")
def recorded():
    return {name: replay(path) for name, path in tp.RECORDED.items()}


def test_the_width_that_pays_grows_with_the_gpus_and_not_with_the_tokens():
    assert width_to_pay(400e12, 200e9, 8) == pytest.approx(16 * 7 / 87 * 2000)
    assert width_to_pay(400e12, 25e9, 8) == pytest.approx(8 * width_to_pay(400e12, 200e9, 8))
    rates = {"flop_per_s": 400e12, "tensor_bytes_per_s": 200e9, "data_bytes_per_s": 25e9}
    width, layers = 2575, 10
    for tokens in (1000, 50_000):
        computing, inside, _ = step_s(layers * 14.5 * width**2, layers, width, tokens, 8, 1, **rates)
        assert inside == pytest.approx(computing, rel=0.01)


def test_the_parts_of_all_ranks_are_the_whole_weight():
    for layer in ("query", "down", "embedding"):
        parts = [local_part(layer, 24, 48, 4, rank) for rank in range(4)]
        assert sum((rows[1] - rows[0]) * (rows[3] - rows[2]) for rows in parts) == 24 * 48
    assert local_part("norm", 24, 1, 4, 3) == [0, 24, 0, 1]
    assert held_elements(8, 16, 1, 32, 2) == (2 * 32 * 8 + 4 * 64 + 3 * 128) // 2 + 24


def test_weights_calls_and_bytes_are_the_formula_s_on_two_gpus(recorded):
    table = tp.ledgers(recorded["steps"]).set_index("strategy")
    assert table["equal"].all() and len(table) == 2
    assert (table["activations, MiB"] / table["of them by formula"]).between(1, 1.08).all()
    links = table["through the link, MiB"]
    assert links.iloc[0] == pytest.approx(links.iloc[1], rel=1e-3), "positions are split, and not a byte more is sent"
    assert tp.as_formula(tp.ledgers(recorded["steps"])).data.startswith("✔")


def test_sending_is_a_smaller_share_of_wider_layers(recorded):
    table = tp.widths(recorded["widths"])
    shares = table[table["strategy"] == "tensor"].set_index("hidden")["longer_share"]
    assert shares.is_monotonic_decreasing and 0.15 < shares[1024] < 0.22 and shares[8192] < 0.08
    assert table.attrs["pays_from"] == pytest.approx(214, abs=2)
    assert "7.2 %" in tp.from_which_width(table).data
    assert "For most of the measuring a GPU was throttled (power cap)." in tp.from_which_width(table).data
    table.attrs["conditions"] = {"throttled_percent": 45.0, "throttle_reasons": "power cap"}
    assert "throttled" not in tp.from_which_width(table).data


def test_split_layers_are_as_fast_as_torch_s(recorded):
    table = tp.steps(recorded["steps"]).set_index("strategy")
    assert table.loc["tensor", "over_torch"] + table.loc["tensor", "spread_over_torch"] < 1
    assert table.loc["tensor", "tokens_per_s"] > 1.1 * table.loc["ddp", "tokens_per_s"]


def test_what_sequence_parallelism_costs_is_said(recorded):
    assert "keeps 7.7 % fewer bytes" in tp.as_formula(tp.ledgers(recorded["steps"])).data
    assert "0.012 % more: norms' gradients" in tp.as_formula(tp.ledgers(recorded["steps"])).data
    steps = tp.steps(recorded["steps"])
    assert "Splitting positions, too, takes longer." in tp.which_is_fastest(steps).data
    steps.loc[steps["strategy"] == "sequence", "step_ms"] = steps.loc[steps["strategy"] == "tensor", "step_ms"].item()
    assert "too, does not take longer." in tp.which_is_fastest(steps).data


def test_a_run_that_is_the_recorded_one_has_its_rows_once(recorded):
    steps, widths = tp.steps(recorded["steps"]), tp.widths(recorded["widths"])
    assert tp.which_is_fastest(steps, steps).data == tp.which_is_fastest(steps).data
    assert tp.from_which_width(widths, widths).data == tp.from_which_width(widths).data
    assert widths["gb_per_s"].between(130, 300).all(), "about half of 478 GB/s, as the page says"


def test_cases_with_dropout_are_not_said_to_train_as_whole_layers(recorded):
    table = tp.cases(recorded["equality"])
    assert "in all 6 cases without dropout.** In the 2 with dropout" in tp.all_right(table).data
    table.loc[table["case"] == "dropout", "right"] = False
    assert "Not as whole layers: dropout" in tp.all_right(table).data


def test_symptoms_are_told_apart(recorded):
    table = tp.symptoms(recorded["suspects"])
    assert [[*verdict_of(row).faults] for row in table.to_dict("records")] == [[name] for name in table["variant"]]
    table = tp.symptoms(recorded["suspects"]).set_index("variant")
    assert (table["same_mask"].notna() == (table.index == "same_mask")).all(), "only one version has masks"
    assert not verdict_of({"variant": "right", "first_error": 1e-7, "weight_error": 1e-7, "same_mask": 1.0}).faults


def test_charts_of_recorded_and_of_small_runs(recorded):
    steps = launch(tp.Steps.small(repeats=2), progress=False)
    checked(tp.steps_chart(tp.steps(steps), tp.steps(recorded["steps"])))
    assert tp.ledgers(steps)["equal"].all()
    assert "say nothing about GPUs" in tp.which_is_fastest(tp.steps(steps), tp.steps(recorded["steps"])).data
    widths = launch(tp.Widths.small(repeats=2, widths=(48, 96)), progress=False)
    checked(tp.widths_chart(tp.widths(widths), tp.widths(recorded["widths"])))
    checked(tp.split_chart(), drawing=True)
    checked(tp.shares_chart(*(tp.shares(tflop_per_s=400, gb_per_s=rate) for rate in (200, 25))))
    said = tp.in_one_minute({"steps": steps, "widths": widths, "equality": recorded["equality"]}, recorded).data
    assert "not measured" not in said and "8 of 8" in said
    assert "7.7 % fewer bytes kept, a step 3.1 % longer" in said


@pytest.mark.parametrize("gpus", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)])
def test_every_case_is_right(gpus):
    table = tp.cases(launch(tp.Equality.small(gpus=gpus), progress=False))
    assert [*table["case"]] == [*CASES] and table["right"].all(), table


def test_heads_that_do_not_divide_are_refused_in_one_sentence():
    with pytest.raises(PlanError, match=r"12 heads, .* do not all divide among them; take gpus=4"):
        tp.Steps.small(gpus=5)


KNOBS = {"layers": 48, "gpus": 32, "memory_gib": 140, "tflop_per_s": 400, "gb_per_s": 200, "node_gb_per_s": 25}


def test_the_explorer_splits_layers_inside_the_node():
    assert "layers over 8 GPUs" in picture(width=8192, tokens=512, **KNOBS)
    assert "Fastest: whole layers, 8 replicas" in picture(width=2048, tokens=8192, **KNOBS | {"layers": 8, "gpus": 8})
    assert tp.explore().children


def test_the_explorer_takes_the_fastest_split_that_fits():
    states, kept = held_bytes(8192, 48, 512, 8)
    assert states == 16 * held_elements(8192, 28_672, 48, 32_768, 8)
    shape = Shape(32_768, 8192, 28_672, 48, 64, 1, 8 * 512)
    assert kept == kept_bytes(shape, 8, True, 2)
    fits = (states + kept) / 2**30 / 0.94
    assert "(✔): layers over 8 GPUs" in picture(width=8192, tokens=512, **KNOBS | {"memory_gib": 1.001 * fits})
    page = picture(width=8192, tokens=512, **KNOBS | {"memory_gib": 0.999 * fits})
    assert "(✔): layers over 16 GPUs" in page and page.count("✘") == 4
    assert "No split fits into 40 GiB" in picture(width=16_384, tokens=512, **KNOBS | {"memory_gib": 40})
