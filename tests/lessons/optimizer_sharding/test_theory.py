"""What lab 11's models say: shares of elements, the ledger around an update, stages of ZeRO."""

import math

import pytest

from labkit.theory.transformer import SIZES, activations, transformer
from lessons import optimizer_sharding
from lessons.optimizer_sharding.theory import (
    ITEMS,
    RULES,
    STAGES,
    excess,
    fullest_bucket,
    ledger,
    owned_elements,
    rank_loads,
    sent_s,
    shards,
    stage,
)

SIZES_OF_PARAMETERS = ([6, 6, 6, 6], [100, 1, 1], [7, 5, 8, 3, 1], [1], [5] * 11)


@pytest.mark.parametrize("sizes", SIZES_OF_PARAMETERS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_shards_have_every_element_once(sizes, ranks):
    parts = shards(sizes, ranks)
    owners = [(number, at) for part in parts for number, begin, end in part for at in range(begin, end)]
    assert sorted(owners) == [(number, at) for number, size in enumerate(sizes) for at in range(size)]
    held = rank_loads(sizes, ranks, "by elements")
    assert max(held) <= math.ceil(sum(sizes) / ranks)
    for rule in RULES:
        assert sum(rank_loads(sizes, ranks, rule)) == sum(sizes)


def test_rules():
    assert rank_loads([100, 1, 1, 100], 2, "by number") == [101, 101]
    assert rank_loads([100, 1, 100, 1], 2, "by number") == [200, 2]
    assert rank_loads([100, 1, 100, 1], 2, "whole parameters") == [101, 101]
    assert rank_loads([100, 1, 1], 2, "whole parameters") == [100, 2]
    assert excess([100, 2]) == pytest.approx(100 / 51 - 1)
    assert fullest_bucket([5, 6, 30, 2], 12) == 30
    assert fullest_bucket([5, 6, 4, 2], 12) == 11


def test_whole_parameters_cannot_balance_every_model():
    table = optimizer_sharding.balance()
    worst = table.groupby("rule")["excess"].max()
    assert worst["by elements"] < 1e-4
    assert worst["whole parameters"] > 1
    whole = table[table["rule"] == "whole parameters"]
    assert (whole.loc[~whole["model"].str.contains("words"), "excess"] < 0.05).all()


XL = [math.prod(shape) for shape in transformer(*SIZES["xl"][:3]).shapes]


def held(way, moment, step=1, **more):
    return ledger(XL, way, 2, moment, step, 2 * 10**9, **{"bucket_bytes": 2**29} | more)


def test_the_ledger_around_an_update():
    whole = 4 * sum(XL)
    plain, ours = held("unsharded", "after update"), held("sharded", "after update")
    assert tuple(plain) == ITEMS
    assert sum(plain.values()) == 5 * whole, "parameters, gradients, two moments, and the square roots of one"
    assert ours["states"] == whole
    assert 0 < ours["temporary"] <= 2**28
    assert held("zero_redundancy", "after update")["temporary"] == pytest.approx(whole / 2, rel=1e-3)
    assert held("unsharded", "after update", kernel="fused")["temporary"] == 0
    assert held("unsharded", "before update", step=0) == dict.fromkeys(ITEMS, 0) | {
        "parameters": whole,
        "gradients": whole,
    }
    many = ledger(XL, "unsharded", 2, "before update", 0, 2 * whole)
    assert (many["gradients"], many["activations"]) == (0, 2 * whole), "activations go as gradients come"
    assert held("sharded", "built")["temporary"] <= 2**29
    assert held("zero_buckets", "built")["temporary"] == 4 * owned_elements(XL, "zero_buckets", 2)
    assert held("zero_redundancy", "built")["temporary"] == 0


def test_activations_grow_with_tokens():
    one = activations(256, 1600, 6400, 48, 25, 10_000)
    assert activations(512, 1600, 6400, 48, 25, 10_000) == 2 * one
    layer = activations(1, 8, 32, 2, 2, 0) - activations(1, 8, 32, 1, 2, 0)
    assert layer == 4 * (8 * 8 + 4 * 32 + 2 + 2)


@pytest.mark.parametrize("ranks", [1, 2, 4, 64])
def test_stages(ranks):
    found = {name: stage(name, 10**9, ranks) for name in STAGES}
    assert found["ours"].held == found["zero1"].held
    assert found["ddp"].held == 16e9
    assert found["zero3"].held == pytest.approx(16e9 / ranks)
    ring = (ranks - 1) / ranks
    sent = {name: round(one.sent / 4e9, 9) for name, one in found.items()}
    volumes = {"ddp": 2, "ours": 3, "zero1": 2, "zero2": 2, "zero3": 3}
    assert sent == {name: round(volume * ring, 9) for name, volume in volumes.items()}


def test_sending():
    assert sent_s(10**9, 1, 100, in_turn=True) == 0
    assert sent_s(10**9, 2, 100, in_turn=False) == pytest.approx(0.02)
    assert sent_s(10**9, 2, 100, in_turn=True) == pytest.approx(0.04)
    assert sent_s(10**9, 8, 100, in_turn=False) == pytest.approx(0.035)


def test_tables_of_stages():
    table = optimizer_sharding.stages("xl", ranks=2).set_index("stage")
    assert table["volume"].to_dict() == {"ddp": 2, "ours": 3, "zero1": 2, "zero2": 2, "zero3": 3}
    assert table.loc["ddp", "held_gb"] == pytest.approx(16 * sum(XL) / 1e9)
    lines = optimizer_sharding.by_ranks("xl").pivot_table(index="ranks", columns="stage", values="held_gb")
    assert (lines["ddp"] == lines["ddp"].iloc[0]).all()
    assert lines["zero3"].is_monotonic_decreasing
    assert lines.loc[64, "ours"] == pytest.approx(8 * sum(XL) / 1e9, rel=0.02), "parameters and gradients stay"
