"""Lab 00's first collective: a right one, and each wrong one by what its tensors hold."""

import pytest

from labkit.course import answers
from labkit.course.verdict import HUNG, RIGHT
from lessons import start

pytestmark = pytest.mark.usefixtures("elsewhere")

ADD, DIVIDE = "    dist.all_reduce(tensor)\n", "    tensor /= dist.get_world_size()\n"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (ADD + DIVIDE, ""),
        (DIVIDE + ADD, ""),
        (ADD + "    return tensor.div_(4)\n", ""),
        (ADD, "sum"),
        (DIVIDE, "own"),
        ("    return tensor\n", "unchanged"),
        (ADD + DIVIDE + DIVIDE, "twice"),
        (ADD + "    return tensor / dist.get_world_size()\n", "returned"),
        ("    dist.broadcast(tensor, 0)\n", "unchanged"),
        ("    dist.reduce(tensor, 0)\n" + DIVIDE, "wrong"),
    ],
)
def test_each_mean_by_what_it_leaves(body, kind):
    answers.save("start.mean_over_ranks", f"import torch.distributed as dist\n\ndef mean_over_ranks(tensor):\n{body}")
    verdict = start.check("mean_over_ranks")
    assert [*verdict.faults] == [kind] * bool(kind) and (verdict.outcome == RIGHT) == (not kind), verdict


def test_a_rank_that_does_not_call_lets_the_others_wait():
    body = "    if dist.get_rank():\n        dist.all_reduce(tensor)\n"
    answers.save("start.mean_over_ranks", f"import torch.distributed as dist\n\ndef mean_over_ranks(tensor):\n{body}")
    assert start.check("mean_over_ranks", patience_s=4.0).outcome == HUNG
