"""Lab 07's ledger before anything runs: which moment is fullest, and the bytes that a report prints."""

import pytest

from labkit.theory.step_memory import ITEMS, PHASES, Shape, ledger
from labkit.theory.transformer import SIZES
from lessons.precision_memory.theory.memory import (
    blocks_peak,
    checkpointed_step,
)

HIDDEN, INNER, LAYERS, HEADS = SIZES["2.7b"]


def shape(sequence: int = 128, precision: str = "float32") -> Shape:
    return Shape(10_000, HIDDEN, INNER, LAYERS, HEADS, 4, sequence, precision)


def test_the_published_models_bytes():
    assert 16 * shape().parameters / 1e9 == pytest.approx(54.5, abs=0.05)
    assert shape(precision="bfloat16").copies / 1e9 == pytest.approx(6.76, abs=0.01)
    assert 4 * HIDDEN * INNER == 100 * 2**20


def test_the_first_step_is_fullest_in_the_update_at_any_short_context():
    steps = [ledger(shape(sequence), "first step") for sequence in (128, 256, 512)]
    assert steps[0] == steps[1] == steps[2]
    assert sum(steps[0].values()) == 16 * shape().parameters


def test_a_steady_step_holds_states_beside_activations():
    first, steady = (sum(ledger(shape(2048), phase).values()) for phase in ("first step", "steady step"))
    assert steady == first + 8 * shape().parameters
    assert ledger(shape(2048), "first step")["activations"] > 0, "at the loss"


def test_mixed_precision_copies_weights_and_halves_activations():
    plain, mixed = (ledger(shape(2048, precision), "steady step") for precision in ("float32", "bfloat16"))
    assert mixed["copies"] > 0 == plain["copies"]
    assert 0.5 < mixed["activations"] / plain["activations"] < 0.75
    assert ledger(shape(128, "bfloat16"), "no_grad")["copies"] == mixed["copies"], "a forward alone makes them, too"


@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_names_every_item(phase):
    items = ledger(shape(), phase)
    assert set(items) == set(ITEMS)
    assert items["parameters"] == 4 * shape().parameters
    assert all(size >= 0 for size in items.values())


def test_torchs_default_update_makes_temporaries():
    fused, foreach = (ledger(shape(), "first step", update) for update in ("fused", "foreach"))
    assert foreach["temporary"] - fused["temporary"] == 4 * shape().parameters


def test_checkpoints_lower_the_peak_of_blocks():
    """The first block is computed again when all others are gone, the last one while all others hold theirs."""
    assert blocks_peak(10, 1, 4, 9) == 31
    assert blocks_peak(10, 1, 4, 1) == 4 + 9
    assert blocks_peak(10, 1, 5, 2) == 3 + 20 + 9
    assert blocks_peak(10, 1, 1, 1) == 10


def test_a_step_with_checkpoints_has_its_fullest_moment_at_the_loss_in_backward_or_at_the_update():
    long, short = shape(1024, "bfloat16"), shape(64, "bfloat16")
    plain = sum(ledger(long, "steady step").values())
    assert plain > checkpointed_step(long, 4) > checkpointed_step(long, 2) > checkpointed_step(long, 1)
    assert checkpointed_step(short, 1) == pytest.approx(sum(ledger(short, "steady step").values()), rel=0.01)
