"""Lab 04's suspects: the code that the page shows of each, run, has its bug and no other one."""

import html
import re

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from lessons import ddp_fsdp
from lessons.ddp_fsdp.exercises import RIGHT_PROGRAM

RANKS, BATCH, SAMPLES = 2, 4, 32


class Bert(nn.Module):
    """A model whose output is its loss."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 1)

    def forward(self, batch):
        return self.layer(batch).square().mean()


class Training:
    """What a suspect's code finds around it: this process is rank 0, and rank 1 has its gradients, too."""

    def __init__(self):
        self.samples = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(0))
        self.numbers: list[list[int]] = []  # of the samples, epoch by epoch
        self.changes: list[torch.Tensor] = []  # of the weights, step by step
        words = {"Bert": self.bert, "loader": self.loader, "optimizer": self, "samples": self.samples}
        words |= {"all_reduce": self.all_reduce, "group": None, "ranks": RANKS, "rank": 0, "Linear": nn.Linear}
        words |= {"DistributedDataParallel": DistributedDataParallel, "DistributedSampler": DistributedSampler}
        self.words = words

    def bert(self):
        self.model = Bert()
        return self.model

    def loader(self, samples, sampler):
        self.numbers.append(list(sampler))
        return samples[self.numbers[-1]].split(BATCH)

    def all_reduce(self, tensor, async_op):
        return dist.all_reduce(tensor.mul_(RANKS), async_op=async_op)

    def step(self):
        self.changes.append(self.model.layer.weight.grad.clone())
        torch.optim.SGD(self.model.layer.parameters(), lr=0.1).step()

    def zero_grad(self):
        self.model.zero_grad()


def faults_of(code: str) -> set[str]:
    """Run a suspect's code as it is shown; give what it does otherwise than rank 0 should."""
    training = Training()
    try:
        exec(code, training.words)
    except RuntimeError as error:
        return {str(error).partition(" in the prior")[0]}
    own, faults = DistributedSampler(training.samples, RANKS, 0), set()
    wanted, model = [], Bert()
    for epoch in range(2):
        own.set_epoch(epoch)
        wanted.append(list(own))
    if len(training.numbers[0]) != SAMPLES // RANKS:
        faults.add("all samples")
    if training.numbers[1] == training.numbers[0]:
        faults.add("same order")
    if not faults and training.numbers != wanted:
        faults.add("other samples")
    first = model(training.samples[training.numbers[0][:BATCH]])
    ratio = training.changes[0] / torch.autograd.grad(first, model.layer.weight)[0]
    return faults if torch.allclose(ratio, torch.ones(3)) else faults | {f"{ratio.mean():.0f} times the gradient"}


SHOWN = dict(
    zip(ddp_fsdp.suspects(), re.findall(r"<pre[^>]*>(.*?)</pre>", ddp_fsdp.show_suspects().data, re.S), strict=True)
)


@pytest.fixture(autouse=True)
def alone():
    """A group of one rank, in this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("right", set()),
        ("no_sampler", {"all samples"}),
        ("summed", {"2 times the gradient"}),
        ("no_set_epoch", {"same order"}),
        ("unused_parameter", {"Expected to have finished reduction"}),
    ],
)
def test_the_code_that_is_shown_has_its_bug_and_no_other_one(name, faults):
    assert faults_of(RIGHT_PROGRAM if name == "right" else html.unescape(SHOWN[name])) == faults
