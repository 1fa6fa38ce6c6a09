"""What the points of lab 13 need of a GPU's memory."""

import dataclasses

import pytest
import torch
from torch.nn import functional

from labkit import node
from labkit.engine.plan import CONTEXT_BYTES, MEMORY_MARGIN
from labkit.theory.resnet import FLOAT_BYTES, kept_numbers
from labkit.theory.sizes import MIB
from labkit.worker.counting import SavedTensors
from lessons.scaling import Accuracy, Communication, Epochs, Messages, Trial
from lessons.scaling.worker.resnet import ResNet

GB = (139, 79, 39, 22, 14.5, 7)
# MiB that the driver counted on GPU 0 of two H100s during recorded points (samples.jsonl), less those between points.
RESERVED_MIB = {("float32", 128): 802, ("float32", 512): 3946, ("autocast", 1024): 2420}


def test_a_forward_keeps_what_the_formula_says():
    model, images = ResNet(8, (2, 2, 2, 2), 10), torch.rand(16, 3, 32, 32)
    with (saved := SavedTensors()):
        functional.cross_entropy(model(images), torch.zeros(16, dtype=torch.int64))
    assert saved.bytes == pytest.approx(16 * FLOAT_BYTES * kept_numbers(8, (2, 2, 2, 2)), rel=0.005)


@pytest.mark.parametrize(("precision", "batch"), RESERVED_MIB)
def test_the_driver_counted_no_less(precision, batch):
    """And up to two thirds more: workspaces, and what the allocator had reserved and would have given back."""
    plan = Epochs(device="cuda", gpus=1, images="glyphs")
    (point, *_) = (point for point in plan.points() if point.gpu_batch == 128)
    point.gpu_batch, point.precision = batch, precision
    images = 3 * 32**2 * (plan.training + plan.testing)  # they stay between points
    due = (plan.needed_bytes(point) - images) / MIB
    assert 0.98 * due < RESERVED_MIB[precision, batch] < 1.67 * due


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
@pytest.mark.parametrize("gb", GB)
def test_everything_is_full_but_one_gpu_with_the_images_of_eight(monkeypatch, gpus, gb):
    here = dataclasses.replace(node.here(), gpus=tuple(node.Gpu(index, "a GPU") for index in range(gpus)))
    monkeypatch.setattr(node, "here", lambda: here)
    monkeypatch.setattr(node, "free_bytes", lambda gpus: gb * 1e9)
    room = (1 - MEMORY_MARGIN) * (gb * 1e9 - CONTEXT_BYTES)
    for kind in (Epochs, Communication, Accuracy, Messages, Trial):
        plan = kind.sized("auto")
        less = (kind, gpus, gb) == (Accuracy, 8, 7)
        assert plan.size == ("middle" if less else "full"), kind
        assert plan.most_needed_bytes() <= room
        if less:
            assert {point.gpu_batch for point in plan.points()} == {128, 256, 8 * 256}
            assert Accuracy.full().most_needed_bytes() > room
