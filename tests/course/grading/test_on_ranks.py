"""An answer that several ranks run together is graded in a network of its own, which holds nothing but its ranks."""

import json
import socket

import pytest
from exercises_tried import ON_RANKS

from labkit.course.exercises import exercise_of
from labkit.course.grading import confine
from labkit.course.grading.confine import Limits
from labkit.course.grading.confined_judge import files_of_modules, judge
from labkit.course.verdict import HUNG, RAISED, RIGHT, WRONG

pytestmark = pytest.mark.usefixtures("confined")

READY = """
def ready(self, weight):
    if self.sync:
        self.missing[self.bucket_of[weight]] -= 1
        while len(self.works) < len(self.buckets) and not self.missing[len(self.works)]:
            self.send_next()
"""
SOCKETS = """
import json, os, socket, sys
def tried(name, *kind, then=lambda made: None):
    try:
        with socket.socket(*kind) as made:
            then(made)
        reached.append(name)
    except OSError:
        pass
reached = []
tried("TCP between its processes", then=lambda made: made.bind(("127.0.0.1", 0)))
tried("the grader", then=lambda made: made.connect(("127.0.0.1", PORT)))
tried("another machine", then=lambda made: made.connect(("192.0.2.1", 80)))
tried("a Unix socket", socket.AF_UNIX)
tried("IPv6", socket.AF_INET6)
tried("SCTP", socket.AF_INET, socket.SOCK_STREAM, 132)
tried("a virtual machine's host", 40, socket.SOCK_STREAM)
os.write(int(sys.argv[1]), json.dumps(reached).encode())
"""
QUEUES = """
import socket, time
listener = socket.create_server(("127.0.0.1", 0))
pairs = []
while True:
    sender = socket.create_connection(listener.getsockname())
    pairs.append((sender, listener.accept()[0]))
    sender.setblocking(False)
    try:
        while True:
            sender.send(bytes(65536))
    except BlockingIOError:
        pass
"""


def judged(code: str, seconds: float = 20.0) -> str:
    return judge(exercise_of("ddp_from_scratch.ready"), "ddp_from_scratch.ready", code, "ada", limits=Limits(seconds))


@pytest.mark.slow
def test_right_and_wrong_methods_are_graded_as_in_the_notebook():
    assert judged(READY).outcome == RIGHT
    late = judged(READY.replace("while len", "if len"))
    assert (late.outcome, [*late.faults]) == (WRONG, ["late"])
    hasty = judged("def ready(self, weight):\n    self.works.append(self.average(weight.grad))\n")
    assert hasty.outcome in (WRONG, RAISED) and {*hasty.faults} & {"wrong", "mismatch"}, hasty
    reference = "from lessons.ddp_from_scratch.worker.replicas import Overlapped\n\nready = Overlapped.ready\n"
    assert judged(reference).outcome == RAISED, "the reference solution has no body there"


@pytest.mark.slow
def test_ranks_that_wait_for_each_other_end_in_their_time():
    wait = "    import torch.distributed as dist\n    if self.works and dist.get_rank():\n        dist.barrier()\n"
    verdict = judged(READY + wait, seconds=1.0)
    assert verdict.outcome == HUNG and "ranks wait for each other" in verdict.faults["hung"]


LEVELS = """
import torch.distributed as dist

def hierarchical_all_reduce(tensor, inside, between, per_node):
    share = tensor.new_empty(tensor.numel() // per_node)
    dist.reduce_scatter_tensor(share, tensor, group=inside)
    dist.all_reduce(share, group=between)
    dist.all_gather_into_tensor(tensor, share, group=inside)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "outcome", "kind"),
    [
        ("", "", RIGHT, ""),
        ("(tensor, share", "(tensor.clone(), share", WRONG, "unchanged"),
        ("share, group=between", "tensor", RAISED, "raised"),
        ("    dist.all_g", "    dist.get_rank() or dist.all_g", HUNG, "hung"),
    ],
)
def test_an_all_reduce_over_groups_is_graded_as_in_the_notebook(old, new, outcome, kind):
    name, limits = "beyond_the_node.hierarchical_all_reduce", Limits(1.0 if outcome == HUNG else 20.0)
    verdict = judge(exercise_of(name), name, LEVELS.replace(old, new), "ada", limits=limits)
    assert (verdict.outcome, [*verdict.faults]) == (outcome, [kind] if kind else []), verdict


CHECKPOINTS = """
from torch.utils.checkpoint import checkpoint

def run_blocks(blocks, x, every):
    for number, block in enumerate(blocks):
        x = checkpoint(block, x, use_reentrant=False) if number % every == 0 else block(x)
    return x
"""
REFERENCE = "from lessons.precision_memory.worker.checkpoints import run_blocks\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "outcome", "kind"),
    [
        (CHECKPOINTS, RIGHT, ""),
        (CHECKPOINTS.replace("% every == 0", "% every"), WRONG, "kept"),
        (CHECKPOINTS.replace("block, x, use", "block(x), use"), RAISED, "raised"),
        (REFERENCE, RAISED, "raised"),
    ],
)
def test_checkpoints_are_graded_as_in_the_notebook(code, outcome, kind):
    name = "precision_memory.run_blocks"
    verdict = judge(exercise_of(name), name, code, "ada", limits=Limits(20.0))
    assert verdict.outcome == outcome and (not kind or kind in verdict.faults), verdict


@pytest.mark.parametrize("name", sorted(ON_RANKS))
def test_the_reference_solution_is_packed_with_the_driver_and_its_body_is_not(name):
    cases = exercise_of(name).cases
    whole, cut = (files_of_modules(cases.may_import, holes) for holes in ((), cases.reference))
    assert whole != cut


def test_only_its_own_ranks_are_in_reach():
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = SOCKETS.replace("PORT", str(server.getsockname()[1]))
        ended = confine.run({"answer.py": code}, "answer.py", Limits(20, loopback=True))
        assert json.loads(ended.results) == ["TCP between its processes"], ended
        alone = confine.run({"answer.py": code}, "answer.py", Limits(20))
    assert json.loads(alone.results) == []


def test_what_is_sent_and_not_received_is_the_answers_memory():
    ended = confine.run({"answer.py": QUEUES}, "answer.py", Limits(20, memory_mib=128, loopback=True))
    assert ended.status is None and ended.took_more == "than 128 MiB of memory"


def test_a_method_loses_its_body_and_nothing_else():
    module = "lessons.ddp_from_scratch.worker.replicas"
    whole, cut = (files_of_modules((module,), holes) for holes in ((), (f"{module}.Overlapped.ready",)))
    (file,) = [name for name in whole if name.endswith("replicas.py")]
    kept, left = ({*files[file].splitlines()} for files in (whole, cut))
    assert left - kept == {"        raise NotImplementedError"} - kept
    assert any("self.missing[self.bucket_of[weight]] -= 1" in line for line in kept - left)
    compile(cut[file], file, "exec")
