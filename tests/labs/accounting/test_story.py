"""Lab 12's sentences: each claim where its table has it, and the opposite where the table has the opposite."""

import pandas as pd
import pytest
from made import CPU, gpu_node

from labkit.engine.run import replay
from labkit.labs import accounting, sharding
from labkit.labs.accounting.theory import MODELS, Mesh, Model
from labkit.tables.published import published

PRINTED = published("communication_accounting")
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
    assert "219.8 billion parameters at 16 bytes are 3 518 GB = 3 276 GiB." in said
    assert "A token leaves 0.0175 GB = 0.0163 GiB" in said


def test_the_largest_kind():
    assert "**optimizer, is 50 % of it**" in memory()
    assert "**activations, is" in memory(parts=accounting.parts(tokens=1_000_000))


def test_readings_of_a_label():
    assert "**44 as labelled, 80 GB**; 42 as its driver says and 41 as if labelled in GiB." in memory()
    assert "makes no difference" not in memory()
    small = memory(labels=accounting.labels(TINY))
    assert "**1 as labelled, 80 GB**" in small and "The reading makes no difference here." in small


def test_what_a_label_means_is_the_drivers_word():
    drivers = accounting.drivers(gpu_node(1))
    assert "141 GB on the label, 150.8 GB = 140.4 GiB by its driver" in memory()
    assert "**On this GPU a label's GB is nearly a GiB**" in memory() and "CUDA itself needs some" in memory()
    two = pd.concat([drivers, drivers.assign(gpu="another")], ignore_index=True)
    assert "**On these GPUs a label's GB is nearly a GiB**" in memory(drivers=two)
    exact = like(drivers, driver_gib=drivers["label_gb"] * 1e9 / 2**30, over_label=1.0)
    assert "a label's GB is 10⁹ bytes" in memory(drivers=exact) and "nearly" not in memory(drivers=exact)
    neither = like(drivers, driver_gib=drivers["label_gb"] * 1.2, over_label=1.29)
    assert "On this GPU a label is neither" in memory(drivers=neither)
    assert "label's GB" not in memory(drivers=accounting.drivers(CPU))


def test_shards():
    assert "Without activations **38 shards** fit below 95 GB; were 95 GiB meant, 35." in memory()
    assert "half of them never shrink" in memory()
    assert "never shrink" not in memory(over=accounting.over_devices(tokens=(0,)))
    assert "no number of shards is enough" in memory(over=accounting.over_devices(tokens=(0, 20_000)))


def test_what_fits():
    said = accounting.explain_fit(accounting.fit()).data
    assert "DDP fits small, medium" in said and "ZeRO-3 fits besides 405 B and XXL." in said
    assert "XXL takes 22 × B200 at least (ZeRO-3)." in said and "more GPUs are no help there" in said
    single = accounting.explain_fit(accounting.fit("float32", recompute=False)).data
    assert "ZeRO-2 fits no further model;" in single and "ZeRO-2 fits no further" not in said
    none = accounting.explain_fit(accounting.fit(models={"huge": Model(2**20, 2**22, 1000)})).data
    assert "no number of these GPUs is enough" in none and "no number of these" not in said
    table = accounting.fit()
    few = like(table, fewest=table["fewest"].clip(upper=100))
    assert "no help there" not in accounting.explain_fit(few).data


def test_a_bound_is_a_least_batch():
    bounds, times = accounting.bounds(), accounting.over_tokens()
    said = accounting.explain_batch(bounds, times).data
    assert "**20 444 tokens in all, 319 a device**" in said and "**25 302 tokens in all, 395 a device**" in said
    assert "**a least batch**" in said
    turned = like(times, fsdp_ms=times["tokens"] ** 2, tensor_ms=0.0)
    assert "a largest batch" in accounting.explain_batch(bounds, turned).data
    mesh = Mesh(2, 32)
    never = accounting.explain_batch(accounting.bounds(mesh), accounting.over_tokens(mesh)).data
    assert never.count("**no batch is compute-bound**") == 2


def test_splits_and_knobs():
    knobs, splits = accounting.knobs(), accounting.splits()
    said = accounting.explain_knobs(knobs, splits).data
    assert "Sent at once, 4 × 16 needs the least, 5 111 tokens. Sent in turn, 8 × 8 needs the least, 16 593" in said
    assert "From 32 tensor shards on a larger batch does not help" in said
    assert "Lower: " in said and "Higher: 32 × 2 devices (1.8×) and compute twice as fast (2.6×)." in said
    assert "No fewer tokens a device, only in all: half the devices, 8 × 4." in said
    few = accounting.explain_knobs(knobs, accounting.splits(8)).data
    assert "Up to 8 tensor shards some batch is enough." in few
    worse = like(knobs, times=[1.0] + [2.0] * (len(knobs) - 1))
    assert "No knob lowers the batch." in accounting.explain_knobs(worse, splits).data
    same = like(knobs, times=1.0)
    assert "The same: links twice as fast," in accounting.explain_knobs(same, splits).data
    unfit = like(splits, at_once=float("nan"), in_turn=float("nan"))
    assert "Sent at once, no split is ever compute-bound." in accounting.explain_knobs(knobs, unfit).data


@pytest.fixture(scope="module")
def trained():
    return accounting.measured(*(replay(sharding.RECORDED[name]) for name in ("strategies", "links")))


def test_a_bound_is_not_enough(trained):
    said = accounting.explain_measured(trained).data
    assert "**FSDP full**: 8 192 tokens a GPU, 11× the bound, keep 52 %" in said
    assert "**The bound is not sufficient**: 2 of 4 settings" in said and "necessary" not in said
    assert "Something in no part is lost" in said and "These data do not say which; a profile may" in said


def test_measured_the_other_way_round(trained):
    good = accounting.explain_measured(like(trained, efficiency=0.97, spread=0.0)).data
    assert "the bound was enough" in good and "some is hidden" in good and "not sufficient" not in good
    slow = like(trained, efficiency=0.7, added=0.71, spread=0.0)
    assert "as its parts add up to" in accounting.explain_measured(slow).data
    added = accounting.explain_measured(slow).data
    assert "add up to that: latency, slower links than the datasheet's, or nothing hidden. These data do not" in added
    assert "in no part" not in added
    noisy = accounting.explain_measured(like(trained, efficiency=0.7, added=0.8, spread=0.2)).data
    assert "less than its parts" not in noisy
    assert "All of it ran below the bound." in accounting.explain_measured(like(trained, bound_tokens=1e9)).data
    unknown = accounting.explain_measured(like(trained, bound_tokens=float("nan"))).data
    assert "No datasheet is known" in unknown and "× the bound" not in unknown


def doubts(printed: dict[str, float] | None = None) -> str:
    values = PRINTED["value"].where(~PRINTED["quantity"].isin(printed or {}), PRINTED["quantity"].map(printed or {}))
    answers = accounting.answers(like(PRINTED, value=values))
    batch = answers.set_index("quantity")["printed"]["compute-bound batch"]
    return accounting.doubt_report(
        answers, accounting.mistakes(printed=batch), accounting.labels(), accounting.bounds()
    ).data


def test_doubts_of_the_published_answers():
    said = doubts()
    assert "The same to the digits printed: parameters, weights+gradients+optimizer and activations per sample." in said
    assert (
        "take 44 devices of 80 GB, not 41: **GiB were divided by GB**" in said and "the same function gives 41." in said
    )
    assert "More than 34 shards were asked for; 38 are needed below 95 GB: **the same mistake**." in said
    assert "**a bound in the wrong direction**" in said and "in one of 24 ways" in said and "640.81" in said


@pytest.mark.parametrize(
    ("printed", "there", "gone"),
    [
        ({"H100 80GB equivalents": 44}, "44 devices of 80 GB hold it.", "GiB were divided"),
        ({"H100 80GB equivalents": 50}, "not 50; no mistake tried gives that.", "GiB were divided"),
        ({"smallest N_FSDP under 95 GB": 37}, "More than 37 shards are needed.", "the same mistake"),
        ({"smallest N_FSDP under 95 GB": 31}, "below 95 GB; no mistake tried gives that.", "the same mistake"),
        ({"compute-bound batch": 395}, "The printed 395 is that.", "wrong direction"),
        ({"compute-bound batch": 20444}, "The printed 20444 is that.", "wrong direction"),
        ({"compute-bound batch": 700}, "none of 24 ways to compute it gives that number", "comes out"),
        ({"compute-bound batch": 640}, "in 4 of 24 ways", "in one of"),
        ({"parameters": 3e11}, "The same to the digits printed: weights+gradients+optimizer", "printed: parameters"),
    ],
)
def test_each_doubt_is_said_where_it_holds_only(printed, there, gone):
    said = doubts(printed)
    assert there in said and gone not in said


def test_a_models_largest_kind_is_computed():
    assert "405.9 billion parameters" in memory(parts=accounting.parts(MODELS["405 B"]))
