"""Lab 12's theory: units that cannot be mixed, parameters as published, exact shards, bounds that are least batches."""

import itertools
from dataclasses import replace
from fractions import Fraction
from math import inf

import pytest

from labkit.theory import gpt
from labkit.theory.memory import ledger
from lessons.accounting import theory as memory
from lessons.accounting.theory import COURSE_MESH as MESH
from lessons.accounting.theory import (
    COURSE_MODELS,
    MODELS,
    UNITS,
    XXL,
    Mesh,
    Model,
    bytes_of,
    devices,
    least_tokens,
    number_in,
    times,
)

STATES = sum(memory.parts_bytes(XXL, 0).values())


@pytest.mark.parametrize("unit", UNITS)
def test_a_number_comes_out_as_it_went_in(unit):
    assert number_in(unit, bytes_of(80, unit)) == 80


def test_the_states_are_a_whole_number_of_gib():
    assert STATES == 16 * 126 * 2 * 16384 * 53248 == 3276 * 2**30
    assert number_in("GB", STATES) == pytest.approx(3517.578, abs=1e-3)


def test_devices_depend_on_the_unit_of_the_label_only():
    assert devices(STATES, 80) == 44
    assert devices(STATES, 80, "GiB") == 41, "the mistake: a label in GB divides GiB"
    assert devices(STATES, 80_000, "MB") == devices(STATES, Fraction(80, 1000), "TB") == 44
    assert devices(bytes_of(3276, "GiB"), 95) == 38 and devices(bytes_of(3276, "GiB"), 95, "GiB") == 35


def test_devices_come_whole():
    assert devices(bytes_of(160, "GB"), 80) == 2
    assert devices(bytes_of(160, "GB") + 1, 80) == 3
    assert devices(1, 80) == 1


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("7 B", 6_738_415_616),
        ("13 B", 13_015_864_320),
        ("70 B", 68_976_648_192),
        ("405 B", 405_853_388_800),
        ("XXL", 219_848_638_464),
    ],
)
def test_parameters_are_those_published(name, parameters):
    assert MODELS[name].parameters == parameters


def test_gpt_2_xl_lacks_its_biases_and_positions_only():
    exact = gpt.gpt(48, 1600).parameters
    assert 0 < exact - MODELS["GPT-2 XL"].parameters < 0.002 * exact


def test_activations_are_lab_05s_but_for_rows_of_statistics():
    whole = gpt.activations(48, 1600, 25, 50257, 1, 1, element_bytes=2)
    statistics = (48 * (25 + 4) + 2) * 4
    assert 2 * MODELS["GPT-2 XL"].kept() == whole - statistics


def test_a_block_of_xxl_keeps_the_inputs_of_its_two_matrices():
    assert XXL.kept() == 126 * (16384 + 53248)
    assert XXL.kept(recompute=True) == 126 * 16384 + 16384 + 53248


def test_fewer_heads_for_keys_and_values_save_parameters_and_activations():
    wide, narrow = Model(64, 128, 2, 8), Model(64, 128, 2, 8, kv_heads=2)
    assert wide.parameters - narrow.parameters == 2 * 2 * 64 * 48
    assert wide.kept() - narrow.kept() == 2 * 2 * 48


def test_the_courses_model_has_a_gate():
    small = COURSE_MODELS["small"]
    assert small.block_parameters == 4 * 768**2 + 3 * 768 * 3072 + 2 * 768
    assert small.parameters == 12 * small.block_parameters + 768 + 2 * 10_000 * 768


def test_sharding_divides_exactly_and_half_of_the_activations_stay():
    whole = memory.parts_bytes(XXL, 1024)
    held = memory.held(XXL, 1024, fsdp=38)
    for kind in memory.WHOLE:
        assert held[kind] * 38 == whole[kind]
    assert held["activations"] == Fraction(whole["activations"], 2) * (1 + Fraction(1, 38))
    assert memory.held(XXL, 1024) == whole
    both = memory.held(XXL, 1024, fsdp=38, tensor=4)
    assert {kind: 4 * size for kind, size in both.items()} == held


@pytest.mark.parametrize("tokens", [0, 1, 1024, 4096])
@pytest.mark.parametrize("unit", ["GB", "GiB"])
def test_the_fewest_shards_fit_and_one_less_does_not(tokens, unit):
    room = bytes_of(95, unit)
    fewest = memory.smallest_fsdp(XXL, tokens, room)
    assert sum(memory.held(XXL, tokens, fewest).values()) <= room
    assert fewest == 1 or sum(memory.held(XXL, tokens, fewest - 1).values()) > room


def test_no_shards_are_enough_for_activations_that_stay():
    tokens = bytes_of(95, "GB") * 2 // (2 * XXL.kept()) + 1
    assert memory.smallest_fsdp(XXL, tokens, bytes_of(95, "GB")) is None


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("strategy", memory.STRATEGIES)
def test_the_fewest_gpus_fit_and_one_less_does_not(model, strategy):
    for precision, gb in itertools.product(("float32", "bfloat16"), (24, 80, 180)):
        room, knobs = bytes_of(gb, "GB"), {"tokens": 1024, "precision": precision}
        fewest = memory.fewest_gpus(MODELS[model], strategy, room, **knobs)
        if fewest is None:
            assert _total(model, strategy, 10**9, knobs) > room
        else:
            assert _total(model, strategy, fewest, knobs) <= room
            assert fewest == 1 or _total(model, strategy, fewest - 1, knobs) > room


def _total(model, strategy, gpus, knobs):
    return sum(memory.zero_held(MODELS[model], strategy, gpus, **knobs).values())


def test_every_stage_holds_sixteen_bytes_a_parameter_alone_and_never_more_on_many():
    for strategy in memory.STRATEGIES:
        for precision in ("float32", "bfloat16"):
            alone = memory.zero_held(XXL, strategy, 1, 0, precision)
            assert sum(alone.values()) == 16 * XXL.parameters
    eight = [sum(memory.zero_held(MODELS["7 B"], name, 8, 1024).values()) for name in memory.STRATEGIES]
    assert eight == sorted(eight, reverse=True)


def test_zero_3_is_no_less_than_lab_04s_ledger_and_not_far_above():
    model = MODELS["GPT-2 XL"]
    ours = memory.zero_held(model, "ZeRO-3", 8, 1024, recompute=False)
    kept = 2 * 1024 * model.kept()
    theirs = ledger(gpt.gpt(48, 1600), "fsdp_full", 8, kept, element_bytes=2, state_bytes=12)
    assert sum(theirs.values()) <= sum(ours.values()) <= 1.15 * sum(theirs.values())


def test_the_worked_example():
    assert (
        least_tokens(MESH, XXL, together=True)
        == pytest.approx(16 * 4.6e14 / (1.8e11 * 2))
        == pytest.approx(20444.44, abs=0.01)
    )
    assert least_tokens(MESH, XXL) == pytest.approx(25301.71, abs=0.01)
    assert MESH.devices == 64


MESHES = [
    MESH,
    Mesh(),
    Mesh(8, 1),
    replace(MESH, fsdp=8, tensor=8),
    replace(MESH, fsdp_axes=3),
    Mesh(4, 2, 1e15, 9e11, weight_bytes=1),
]


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("together", [True, False])
def test_above_the_bound_computing_covers_communication_and_below_it_does_not(mesh, together):
    def covered(tokens):
        math, weights, activations = times(mesh, XXL, tokens)
        return math >= (max(weights, activations) if together else weights + activations)

    least = least_tokens(mesh, XXL, together)
    assert covered(1.001 * least) and not covered(0.999 * least)


def test_where_activations_take_longer_no_batch_is_enough():
    narrow = replace(XXL, d_ff=8192)
    assert least_tokens(MESH, narrow) == least_tokens(MESH, narrow, together=True) == inf
    assert times(MESH, narrow, 1e9).tensor_s > times(MESH, narrow, 1e9).math_s


def test_d_model_and_depth_cancel():
    assert least_tokens(MESH, replace(XXL, d_model=1024, blocks=1)) == pytest.approx(least_tokens(MESH, XXL))


def test_a_dimension_of_one_device_sends_nothing():
    assert times(Mesh(1, 64), XXL, 1000).fsdp_s == 0 and times(Mesh(64, 1), XXL, 1000).tensor_s == 0
    assert least_tokens(Mesh(64, 1), XXL) == least_tokens(Mesh(64, 1), XXL, together=True)
