"""Lab 16's split layers on real ranks, in awkward steps: accumulated, frozen, in bfloat16, evaluated, with dropout."""

import pytest
import split_worker
import torch


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_awkward_steps_are_those_of_whole_layers(ranks, tmp_path):
    torch.multiprocessing.spawn(split_worker.work, (ranks, str(tmp_path / "store")), nprocs=ranks)
