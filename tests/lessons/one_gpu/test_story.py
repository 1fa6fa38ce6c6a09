"""Each verdict of lab 17 follows its table: said where it holds, its opposite where it does not."""

import pytest
from made import table

from labkit.engine.recordings import replay
from lessons import one_gpu

NAN = float("nan")


def rungs(*rates, mfu=0.52, spread=1.0, on_cpu=False):
    rows = [
        (f"knob {chr(97 + i)}", rate, spread, rate / rates[max(0, i - 1)], rate / rates[0], mfu)
        for i, rate in enumerate(rates)
    ]
    columns = ["knob", "tokens_per_s", "spread_tokens_per_s", "times_previous", "times_first", "mfu"]
    return table(*rows, columns=columns, on_cpu=on_cpu)


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (
            rungs(8e3, 20e3, 16e3),
            "3.7× as fast with knob c.** In bfloat16 the fastest is knob c, with an MFU of 52 %. Here 2.5×, with",
        ),
        (rungs(8e3, 20e3, on_cpu=True), "CPU processes share cores: times of this run say nothing about GPUs"),
        (rungs(100.0, 100.5), "Here no knob makes it faster beyond noise"),
        (rungs(100.0, 150.0, spread=90.0), "Here no knob makes it faster beyond noise"),
        (rungs(100.0), "Here fewer than two settings"),
    ],
)
def test_fastest_step(here, said):
    assert said in one_gpu.fastest_step(here, rungs(26e3, 52e3, 97e3)).data
    assert "MFU" not in one_gpu.fastest_step(here, rungs(26e3, 52e3, mfu=NAN)).data
    float8 = rungs(97e3, 120e3, mfu=0.33).replace({"knob": {"knob b": "float8 products"}})
    float8.loc[0, "mfu"] = 0.55
    told = one_gpu.fastest_step(here, float8).data
    assert "fastest is knob a, with an MFU of 55 %" in told, "float8 has another peak"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [(1.25, 0.1, 1e-4)],
            "1.2× as fast.** Its gradient differs from bfloat16's by 10 %, the loss of no step by more",
        ),
        ([(0.9, 0.1, 1e-4)], "the step is no faster.**"),
        ([], "No GPU ran the step"),
    ],
)
def test_in_float8(rows, said):
    assert said in one_gpu.in_float8(table(*rows, columns=["times", "gradient_away", "loss_away"])).data


def sizes(*rates, peaks=True):
    rows = [(2**i, rate, 1000.0 * 2**i if peaks else NAN, 1024.0 * 2**i) for i, rate in enumerate(rates)]
    return table(*rows, columns=["micro_batch", "tokens_per_s", "peak_mib", "predicted_mib"])


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        (
            sizes(10.0, 95.0, 100.0, NAN),
            "From 2 sequences on, the rate is within 5 % of the best.** The ledger is within 2.4",
        ),
        (
            sizes(10.0, 90.0, 100.0, peaks=False),
            "From 4 sequences on, the rate is within 5 % of the best.** There is no",
        ),
        (sizes(NAN, NAN), "No batch fitted"),
    ],
)
def test_enough_sequences(batches, said):
    assert said in one_gpu.enough_sequences(batches).data


def test_rules_of_the_recorded_runs():
    recorded = {name: replay(path) for name, path in one_gpu.RECORDED.items()}
    said = one_gpu.in_one_minute(recorded, recorded).data
    assert "as fast with all knobs up to float8 products" in said and "MFU" in said
    assert "within 5 % of the best rate" in said
    assert "gains move 0 % of their way" in said
