"""Lab 12's verdicts: each claim where its table has it, and the opposite where the table has the opposite."""

import made
import pytest
from made import CPU, gpu_node

from labkit.engine.recordings import replay
from lessons import accounting, sharding
from lessons.accounting.theory import MODELS, Mesh, Model


def made_from(table, **columns):
    """Give a table with columns or facts replaced."""
    facts = {name: columns.pop(name) for name in list(columns) if name in table.attrs}
    made = table.assign(**columns)
    made.attrs = table.attrs | facts
    return made


def test_the_largest_part():
    assert "**The largest part is the optimizer's states, 50 %" in accounting.largest_kind(accounting.parts()).data
    assert "part is activations" in accounting.largest_kind(accounting.parts(tokens=1_000_000)).data
    assert "200 463 tokens" in accounting.largest_kind(accounting.parts()).data
    assert "| 8.00 |\n| activations | 18.0 | 16.7 | 0.0817 |" in accounting.largest_kind(accounting.parts()).data


def test_what_a_label_means_is_the_drivers_word():
    labels, drivers = accounting.labels(), accounting.drivers(gpu_node(1))

    def said(drivers, labels=labels):
        return accounting.what_a_label_means(labels, drivers).data

    assert "between 41 and 44 devices" in said(drivers) and "nearly a GiB" in said(drivers)
    assert "10⁹ bytes, as it says" in said(made_from(drivers, driver_gib=131.3, over_label=1.0))
    assert "neither" in said(made_from(drivers, driver_gib=drivers["label_gb"] * 1.2, over_label=1.29))
    assert "label's GB" not in said(accounting.drivers(CPU))
    assert "no difference" in said(drivers, accounting.labels(Model(64, 256, 2)))


def test_enough_shards():
    assert "**38 shards hold the states, 41 also" in accounting.enough_shards(accounting.over_devices()).data
    assert "no number of shards is enough" in accounting.enough_shards(accounting.over_devices((0, 20_000))).data


def test_the_sizes_of_models_stand_below_who_needs_what():
    said = accounting.needed_strategy(accounting.fit()).data
    assert "| 70 B | 69.0 | 8192 | 28672 | 80 | 64 | 8 | 3 | 32000 | no |" in said
    assert "| GPT-2 XL | 1.56 | 1600 | 6400 | 48 | 25 | 25 | 2 | 50257 | yes |" in said
    assert "GPT-2 XL" not in accounting.needed_strategy(accounting.fit(models={"mine": MODELS["70 B"]})).data


def test_which_strategy_is_needed():
    table = accounting.fit()
    assert "Only ZeRO-3 fits 405 B and XXL" in accounting.needed_strategy(table).data
    assert "hardly help" in accounting.needed_strategy(table).data
    few = made_from(table, fewest=table["fewest"].clip(upper=20))
    assert "hardly help" not in accounting.needed_strategy(few).data
    small = accounting.fit(models={"small": MODELS["small"]})
    assert "No model here needs ZeRO-3" in accounting.needed_strategy(small).data
    huge = accounting.fit(models={"huge": Model(2**20, 2**22, 1000)})
    assert "No number of these GPUs" in accounting.needed_strategy(huge).data


def test_a_bound_is_a_least_batch():
    said = accounting.least_batch(accounting.bound()).data
    assert "from 6 460 tokens on, 807 per GPU" in said and "| 2.85 ms | 2.74 ms | 111 µs |" in said
    assert "No batch" in accounting.least_batch(accounting.bound(Mesh(1, 8, bytes_per_s=32e9))).data


def test_splits():
    said = accounting.best_split(accounting.splits()).data
    assert "H200: the least batch is that of Y = 8." in said and "Y = 4; from Y = 8 on no batch" in said
    assert "no split" in accounting.best_split(made_from(accounting.splits(), tokens=float("nan"))).data


def test_knobs():
    knobs = accounting.knobs()
    said = accounting.turned_knobs(knobs).data
    assert "lowers it: 2 × 4 GPUs, 0.36×" in said and "raises it: 8 × 1 GPUs, 2.2×" in said
    same = accounting.turned_knobs(made_from(knobs, times=1.0)).data
    assert "Nothing lowers" in same and "Nothing raises" in same


@pytest.fixture(scope="module")
def trained():
    return accounting.measured(*(replay(sharding.RECORDED[name]) for name in ("strategies", "links")))


def test_a_bound_is_enough_or_not(trained):
    assert "not sufficient: 2 of 4" in accounting.bound_enough(trained).data
    assert "even less than if nothing hid" in accounting.bound_enough(trained).data
    slow = made_from(trained, efficiency=0.7, added=0.71, spread=0.0)
    assert "parts add up to that" in accounting.bound_enough(slow).data
    noisy = made_from(trained, efficiency=0.7, added=0.8, spread=0.2)
    assert "even less" not in accounting.bound_enough(noisy).data
    assert "bound was enough" in accounting.bound_enough(made_from(trained, efficiency=0.97)).data
    assert "below the bound" in accounting.bound_enough(made_from(trained, bound_tokens=1e9)).data
    assert "No datasheet" in accounting.bound_enough(made_from(trained, bound_tokens=float("nan"))).data


def test_each_setting_stands_beside_its_bounds():
    one = {"strategy": "fsdp_full", "tokens": 8192, "bound_tokens": 500.0, "added": 0.845}
    table = made.table(*[(*one.values(), 0.52, 0.045)], columns=[*one, "efficiency", "spread"])
    said = accounting.bound_enough(table).data
    assert "| FSDP full | 8 192 | 500 | 16.4 | 84.5 | 52.0 ± 4.5 |" in said and "<details>" not in said
    unknown = accounting.bound_enough(made_from(table, bound_tokens=float("nan"))).data
    assert "| 8 192 | – | – | 84.5 |" in unknown
