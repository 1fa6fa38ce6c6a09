"""Lab 12's sentences: each claim where its table has it, and the opposite where the table has the opposite."""

import pandas as pd
import pytest
from made import CPU, gpu_node

from labkit.engine.run import replay
from lessons import accounting, sharding
from lessons.accounting.theory import MODELS, Mesh, Model

TINY = Model(64, 256, 2)


def like(table: pd.DataFrame, **columns) -> pd.DataFrame:
    """Give a table with columns or attrs replaced."""
    told = {name: columns.pop(name) for name in list(columns) if name in table.attrs}
    made = table.assign(**columns)
    made.attrs = table.attrs | told
    return made


def memory(parts=None, labels=None, drivers=None, over=None) -> str:
    told = (
        accounting.parts() if parts is None else parts,
        accounting.labels() if labels is None else labels,
        accounting.drivers(gpu_node(1)) if drivers is None else drivers,
        accounting.over_devices() if over is None else over,
    )
    return accounting.explain_memory(*told).data


def test_units_are_named_with_every_size():
    said = memory()
    for part in ("219.8 billion", "3 518 GB = 3 276 GiB", "0.0175 GB = 0.0163 GiB"):
        assert part in said


def test_the_largest_kind():
    assert "optimizer: 50 %" in memory()
    assert "optimizer: " not in memory(parts=accounting.parts(tokens=1_000_000))


def test_readings_of_a_label():
    assert "**44 as labelled, 80 GB**, 42 as its driver says and 41 as if labelled in GiB." in memory()
    assert "makes no difference" not in memory()
    small = memory(labels=accounting.labels(TINY))
    assert "**1 as labelled, 80 GB**" in small and "The reading makes no difference here." in small


def test_what_a_label_means_is_the_drivers_word():
    drivers = accounting.drivers(gpu_node(1))
    assert "141 GB on the label and 150.8 GB = 140.4 GiB by its driver" in memory()
    assert "nearly a GiB" in memory()
    exact = like(drivers, driver_gib=drivers["label_gb"] * 1e9 / 2**30, over_label=1.0)
    assert "a label's GB is 10⁹ bytes" in memory(drivers=exact) and "nearly" not in memory(drivers=exact)
    neither = like(drivers, driver_gib=drivers["label_gb"] * 1.2, over_label=1.29)
    assert "neither 10⁹ bytes nor a GiB" in memory(drivers=neither)
    assert "label's GB" not in memory(drivers=accounting.drivers(CPU))


def test_shards():
    assert "Without activations **38 shards** fit below 95 GB (35 below 95 GiB)." in memory()
    assert "never sharded" in memory()
    assert "never sharded" not in memory(over=accounting.over_devices(tokens=(0,)))
    assert "no number of shards is enough" in memory(over=accounting.over_devices(tokens=(0, 20_000)))


def test_what_fits():
    said = accounting.explain_fit(accounting.fit()).data
    assert "DDP fits small, medium" in said and "ZeRO-3 fits also 405 B and XXL." in said
    assert "at least 22 × B200 (ZeRO-3)" in said and "more GPUs do not help" in said
    single = accounting.explain_fit(accounting.fit("float32", recompute=False)).data
    assert "ZeRO-2 fits no other model." in single and "no other model" not in said
    none = accounting.explain_fit(accounting.fit(models={"huge": Model(2**20, 2**22, 1000)})).data
    assert "no number of these GPUs is enough" in none and "no number of these" not in said
    table = accounting.fit()
    few = like(table, fewest=table["fewest"].clip(upper=100))
    assert "do not help" not in accounting.explain_fit(few).data


def test_a_bound_is_a_least_batch():
    bounds, times = accounting.bounds(), accounting.over_tokens()
    said = accounting.explain_batch(bounds, times).data
    assert "**20 444 tokens in all, 319 per device**" in said and "**25 302 tokens in all, 395 per device**" in said
    assert "a least batch" in said
    turned = like(times, fsdp_ms=times["tokens"] ** 2, tensor_ms=0.0)
    assert "a largest batch" in accounting.explain_batch(bounds, turned).data
    mesh = Mesh(2, 32)
    never = accounting.explain_batch(accounting.bounds(mesh), accounting.over_tokens(mesh)).data
    assert never.count("**no batch is compute-bound**") == 2


def test_splits_and_knobs():
    knobs, splits = accounting.knobs(), accounting.splits()
    said = accounting.explain_knobs(knobs, splits).data
    for part in (
        "**4 × 16 needs the least batch**, 5 111",
        "**8 × 8 needs the least batch**, 16 593",
        "From 32 tensor",
    ):
        assert part in said
    assert "raise the batch**: 32 × 2 devices (1.8×) and compute twice as fast (2.6×)." in said
    assert "not per device: half the devices, 8 × 4." in said
    few = accounting.explain_knobs(knobs, accounting.splits(8)).data
    assert "Up to 8 tensor shards some batch is enough." in few
    worse = like(knobs, times=[1.0] + [2.0] * (len(knobs) - 1))
    assert "No knob would lower the batch." in accounting.explain_knobs(worse, splits).data
    same = like(knobs, times=1.0)
    assert "leave it as it is: links twice as fast," in accounting.explain_knobs(same, splits).data
    unfit = like(splits, at_once=float("nan"), in_turn=float("nan"))
    assert "no split is ever compute-bound" in accounting.explain_knobs(knobs, unfit).data


@pytest.fixture(scope="module")
def trained():
    return accounting.measured(*(replay(sharding.RECORDED[name]) for name in ("strategies", "links")))


def test_a_bound_is_not_enough(trained):
    said = accounting.explain_measured(trained).data
    assert "**FSDP full**, 8 192 tokens per GPU, 11× the bound: 52 % of one GPU's speed, below the 85 %" in said
    assert "not sufficient**: 2 of 4 settings" in said and "in none of the parts" in said


def test_measured_the_other_way_round(trained):
    good = accounting.explain_measured(like(trained, efficiency=0.97, spread=0.0)).data
    assert "bound was enough" in good and "some is hidden" in good and "not sufficient" not in good
    slow = like(trained, efficiency=0.7, added=0.71, spread=0.0)
    assert "as its parts predict" in accounting.explain_measured(slow).data
    added = accounting.explain_measured(slow).data
    assert "add up to that" in added and "in none of the parts" not in added
    noisy = accounting.explain_measured(like(trained, efficiency=0.7, added=0.8, spread=0.2)).data
    assert "below the" not in noisy
    assert "ran below the bound" in accounting.explain_measured(like(trained, bound_tokens=1e9)).data
    unknown = accounting.explain_measured(like(trained, bound_tokens=float("nan"))).data
    assert "No datasheet is known" in unknown and "× the bound" not in unknown


def test_a_models_largest_kind_is_computed():
    assert "405.9 billion parameters" in memory(parts=accounting.parts(MODELS["405 B"]))
