"""Layers that somebody shards: right ones, wrong ones by the kind of their fault, and ones that raise or hang."""

import pytest

from labkit.course import answers
from labkit.course.exercises import exercise_of
from labkit.course.grading.confine import Limits
from labkit.course.grading.confined_judge import judge
from labkit.course.source import code_of
from labkit.course.verdict import HUNG, RAISED, RIGHT, UNANSWERED, WRONG
from labkit.launching import launch
from lessons import ddp_fsdp
from lessons.ddp_fsdp.exercises import judge_layers, judge_on_ranks
from lessons.ddp_fsdp.plan import Layers
from lessons.ddp_fsdp.theory import layer_faults

NAME = "ddp_fsdp.sharded_layer"
REFERENCE = "\n\n".join(map(code_of, ddp_fsdp.check.by_name["sharded_layer"].solution))
IMPORTS = "import torch\nimport torch.distributed as dist\nfrom typing import Any\n\n"
RESIZE = "    self.whole.untyped_storage().resize_(self.whole.nbytes)\n"
GATHER = "    dist.all_gather_into_tensor(self.whole.data, self.shard.data, group=self.group)\n"
FREE = "    self.whole.untyped_storage().resize_(0)\n"
MEAN = "gradient / self.ranks"
SCATTER = """    self.shard.grad = torch.empty_like(self.shard)
    dist.reduce_scatter_tensor(self.shard.grad, gradient / self.ranks, group=self.group)
"""
PART = "(gradient / self.ranks).chunk(self.ranks)[dist.get_rank(self.group)]"
GATHER_LIST = """    parts = [torch.empty_like(self.shard.data) for _ in range(self.ranks)]
    dist.all_gather(parts, self.shard.data, group=self.group)
    self.whole.data.copy_(torch.cat(parts))
"""
SCATTER_LIST = """    self.shard.grad = torch.empty_like(self.shard)
    parts = [*(gradient / self.ranks).chunk(self.ranks)]
    work = dist.reduce_scatter(self.shard.grad, parts, group=self.group, async_op=True)
    work.wait()
"""
UNUSUAL = [(GATHER, GATHER_LIST), (SCATTER, SCATTER_LIST)]
SEND_RING = """    rank = dist.get_rank(self.group)
    parts = self.whole.data.chunk(self.ranks)
    parts[rank].copy_(self.shard.data)
    for step in range(self.ranks - 1):
        sent = dist.isend(parts[(rank - step) % self.ranks], (rank + 1) % self.ranks, group=self.group)
        dist.recv(parts[(rank - step - 1) % self.ranks], (rank - 1) % self.ranks, group=self.group)
        sent.wait()
"""
ALL_REDUCE = f"""    gradient = gradient / self.ranks
    dist.all_reduce(gradient, group=self.group)
    self.shard.grad = {PART.replace("(gradient / self.ranks)", "gradient")}.clone()
"""
VIEW = f"""    mean = gradient / self.ranks
    self.shard.grad = {PART.replace("(gradient / self.ranks)", "mean")}
    dist.reduce_scatter_tensor(self.shard.grad, mean.clone(), group=self.group)
"""
NEW_TENSOR = "    self.whole.data = torch.empty(self.shard.numel() * self.ranks)\n"
SKIP = "    if self.whole.untyped_storage().nbytes():\n        return\n"
ONCE = "    if hasattr(self, 'here'):\n        return\n    self.here = True\n"

# What is replaced in the reference solution, and the kind of the fault; none of a right one.
TRIED = {
    "reference": ([], ""),
    "lists": (UNUSUAL, ""),
    "sends": ([(GATHER, SEND_RING)], ""),
    "all_reduce": ([(SCATTER, ALL_REDUCE)], "bytes"),
    "summed": ([(MEAN, "gradient")], "summed"),
    "averaged_twice": ([(MEAN, "gradient / self.ranks / self.ranks")], "averaged_twice"),
    "not_reduced": ([(SCATTER, f"    self.shard.grad = {PART}.clone()\n")], "not_reduced"),
    "next_ranks_part": ([(SCATTER, SCATTER_LIST.replace(", parts,", ", parts[1:] + parts[:1],"))], "wrong_shard"),
    "no_gradient": ([(SCATTER, "")], "no_gradient"),
    "no_gather": ([(GATHER, "")], "wrong_weights"),
    "reversed": ([(GATHER, GATHER_LIST.replace("cat(parts)", "cat(parts[::-1])"))], "wrong_weights"),
    "forward_alone": ([(RESIZE, ONCE + RESIZE)], "no_room"),
    "gather_not_waited": (
        [("self.shard.data, group=self.group", "self.shard.data, async_op=True, group=self.group")],
        "not_waited",
    ),
    "scatter_not_waited": ([(f"{MEAN}, group=self.group", f"{MEAN}, async_op=True, group=self.group")], "not_waited"),
    "never_freed": ([(FREE, "    pass\n")], "kept"),
    "kept_for_backward": ([(FREE, "    pass\n"), (RESIZE, SKIP + RESIZE)], "kept"),
    "kept_after_backward": ([("    self.whole.grad = None\n    self.free()", "    self.whole.grad = None")], "kept"),
    "another_tensor": ([(FREE, "    self.whole.data = torch.empty(0)\n"), (RESIZE, NEW_TENSOR)], "kept"),
    "gradient_left": ([("    self.whole.grad = None\n", "")], "gradient_left"),
    "gradient_zeroed": ([("self.whole.grad = None", "self.whole.grad.zero_()")], "gradient_left"),
    "view": ([(SCATTER, VIEW)], "gradient_memory"),
    "two_ranks": ([(MEAN, "gradient / 2")], "number_of_ranks"),
}
pytestmark = pytest.mark.usefixtures("elsewhere")


def changed(*changes):
    text = IMPORTS + REFERENCE
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """The verdicts on all layers above, from one launch of three processes."""
    folder, files = tmp_path_factory.mktemp("layers"), {}
    for name, (changes, _) in TRIED.items():
        (file := folder / f"{name}.py").write_text(changed(*changes))
        files[name] = str(file)
    run = launch(Layers.small(gpus=3, files=tuple(files.values()), warm_ups=1, repeats=2), progress=False)
    return {name: judge_layers(run, file) for name, file in files.items()}


@pytest.mark.parametrize("name", TRIED)
def test_each_fault_by_its_kind(verdicts, name):
    verdict, kind = verdicts[name], TRIED[name][1]
    assert verdict.outcome == (WRONG if kind else RIGHT), verdict
    assert kind in verdict.faults if kind else not verdict.faults, verdict
    assert len(verdict.faults) <= 2, "what follows from a fault is not told"


def test_faults_name_the_factor_and_the_number_of_ranks(verdicts):
    assert "2× the right one" in verdicts["summed"].faults["summed"]
    assert "2× the bytes" in verdicts["all_reduce"].faults["bytes"]
    assert "right on 2 ranks, and wrong on 3" in verdicts["two_ranks"].faults["number_of_ranks"]


def test_a_right_one_is_timed_beside_the_reference_solution_and_torch_s(verdicts):
    assert "on 2 and 3 ranks" in verdicts["reference"].merits[0]
    assert verdicts["reference"].merits[-1].endswith("torch's `fully_shard` (3 CPU processes)")


def test_a_right_unusual_answer_is_checked_on_four_ranks_and_trains_in_the_lesson_s_trial():
    answers.save(NAME, changed(*UNUSUAL))
    assert ddp_fsdp.yours("sharded_layer") == "", "it was not checked"
    verdict = ddp_fsdp.check("sharded_layer", gpus=4)
    assert verdict.outcome == RIGHT and "on 2, 3 and 4 ranks" in verdict.merits[0], verdict
    yours = ddp_fsdp.yours("sharded_layer")
    table = ddp_fsdp.trained(launch(ddp_fsdp.Trial.small(variants=("own_shards",), yours=yours), progress=False))
    assert table["variant"].tolist() == ["own_shards", "yours"] and table["equal"].all()
    assert "your layers" in ddp_fsdp.same_training(table).data


RANK_0 = "    if dist.get_rank(self.group) == 0:\n        "


@pytest.mark.parametrize(
    ("changes", "outcome", "says"),
    [
        (
            [(SCATTER, RANK_0 + "dist.barrier(group=self.group)\n" + SCATTER)],
            RAISED,
            "rank 0 calls barrier where rank 1 calls reduce_scatter_tensor with",
        ),
        ([(SCATTER, RANK_0 + "self.gather()\n" + SCATTER)], RAISED, "calls all_gather_into_tensor"),
        ([("self.shard.data, group=self.group", "self.shard.data")], RAISED, "pass `group=self.group`"),
        ([(RESIZE, "")], RAISED, "whose memory is freed or too small: resize its storage first, in bytes"),
        ([("def free(self)", "def release(self)")], RAISED, "defines no function `free`; it defines `gather`"),
        ([(SCATTER, RANK_0 + "while True: pass\n" + SCATTER)], HUNG, "did not come back within 3 s"),
    ],
)
def test_an_answer_that_raises_or_hangs_is_told_so(changes, outcome, says):
    answers.save(NAME, changed(*changes))
    verdict = ddp_fsdp.check("sharded_layer", patience_s=3)
    (sentence,) = verdict.faults.values()
    assert verdict.outcome == outcome and says in sentence, verdict


def test_each_function_that_is_left_open_counts():
    for function in ("gather", "free", "scatter"):
        text = changed().partition(f"def {function}(self) -> None:\n")
        answers.save(NAME, text[0] + text[1] + "    ...\n" + text[2])
        assert ddp_fsdp.check("sharded_layer").outcome == UNANSWERED


def test_faults_at_their_bounds():
    right = {"ranks": 2, "gather_sent": 1.0, "scatter_sent": 1.0, "gradient_ratio": 1.0, "gradient_memory": 1.0}
    assert layer_faults(right) == {}
    assert [*layer_faults(right | {"gather_sent": 2.0})] == ["bytes"]
    assert [*layer_faults(right | {"update_error": 0.1})] == ["wrong"]
    assert [*layer_faults(right | {"weights_error": float("inf"), "gradient_error": 0.5})] == ["wrong_weights"]
    assert [*layer_faults(right | {"gradient_error": 0.5, "own_error": 1.0, "other_error": 1.0})] == ["wrong_gradient"]


@pytest.mark.slow
@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize("name", ["lists", "summed", "next_ranks_part", "never_freed", "two_ranks"])
def test_the_grader_says_what_the_check_says(name):
    changes, kind = TRIED[name]
    verdict = judge(exercise_of(NAME), NAME, changed(*changes), "ada", limits=Limits(40))
    assert verdict.outcome == (WRONG if kind else RIGHT), verdict
    assert {*verdict.faults} == ({"wrong_gradient"} if name == "two_ranks" else {kind} - {""})


def test_gradients_are_compared_out_of_the_answers_reach():
    right = {"notes": {}, "gradients": [[1.0, 2.0]], "shards": [[3.0, 4.0]]}
    cases = [(2, 4, 1, 0)]
    assert judge_on_ranks([[right, right]], cases, [[right, right]]).outcome == RIGHT
    for name in ("gradients", "shards"):
        forged = right | {name: [[1.0, 2.1]]}
        assert [*judge_on_ranks([[right, forged]], cases, [[right, right]]).faults] == ["wrong"]
        assert [*judge_on_ranks([[right, right | {name: [[1.0]]}]], cases, [[right, right]]).faults] == ["wrong"]
