"""Lab 05's sharded step: what is wrong with the units, the exchanges or the losses is named; a right one trains."""

import pytest

from labkit.course import answers
from labkit.course.source import code_of
from labkit.course.verdict import RIGHT, WRONG
from labkit.launching import launch
from lessons import sharding
from lessons.sharding.exercises import judge_run
from lessons.sharding.tables import accumulation

pytestmark = pytest.mark.usefixtures("elsewhere")

UNITS, GRADIENTS = (code_of(f"lessons.sharding.worker.sharded.{name}") for name in ("shard_units", "add_gradients"))
BLOCKS = "    for block in model.blocks:\n        fully_shard(block, mesh=mesh)\n"
MODEL = "    fully_shard(model, mesh=mesh)"
LAST = "number == len(micro_batches) - 1"


def written(*swaps: tuple[str, str]) -> str:
    text = f"from torch.distributed.fsdp import fully_shard\n\n{UNITS}\n\n{GRADIENTS}"
    for old, new in swaps:
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("swaps", "kind"),
    [
        ([(BLOCKS, "")], "root_only"),
        ([(" / len(micro_batches)", "")], "undivided"),
        ([(" / len(micro_batches)", " / len(micro_batches) / 2")], "wrong"),
        ([(LAST, "True")], "synced_every_time"),
        ([(LAST, "False")], "never_synced"),
        ([(LAST, "number == 0")], "wrong"),
        ([("        (model(", "    (model(")], "wrong"),
        ([(MODEL, "    pass"), ("model.set_requires", "for block in model.blocks: block.set_requires")], "left_out"),
    ],
)
def test_each_mistake_by_its_kind(swaps, kind):
    answers.save("sharding.sharded_step", written(*swaps))
    verdict = sharding.check("sharded_step")
    assert verdict.outcome == WRONG and [*verdict.faults] == [kind], verdict


@pytest.mark.slow
def test_a_model_that_is_a_unit_before_its_blocks_is_told_the_order():
    answers.save("sharding.sharded_step", written((BLOCKS, ""), (MODEL, f"{MODEL}\n{BLOCKS.rstrip()}")))
    verdict = sharding.check("sharded_step")
    assert verdict.outcome == "raised" and "root_first" in verdict.faults, verdict


def test_finer_units_are_right_and_train_and_are_timed_beside_the_reference():
    parts = "[fully_shard(part, mesh=mesh) for part in block.children()]"
    answers.save("sharding.sharded_step", written(("fully_shard(block, mesh=mesh)", parts)))
    verdict = sharding.check("sharded_step", gpus=2)
    assert verdict.outcome == RIGHT, verdict
    assert "on 2 CPU processes" in verdict.merits[2] and "with your functions" in verdict.merits[2]
    plan = sharding.Accumulation.small(
        gpus=2, seeds=(0,), strategies=("ddp", "fsdp_full"), times=(2,), yours=sharding.yours("sharded_step")
    )
    table = accumulation(launch(plan, progress=False)).set_index("strategy")
    assert (
        table.loc["fsdp_full", "step_ms_yours"] > 0
        and table.loc["ddp", "step_ms_yours"] != table.loc["ddp", "step_ms_yours"]
    )
    said = sharding.one_exchange(accumulation(launch(plan, progress=False)), table.reset_index())
    assert "MiB sent, yours" in said.data


def test_the_loss_that_is_told_is_the_mean_of_all_micro_batches(tmp_path):
    (file := tmp_path / "sharding_sharded_step.py").write_text(written())
    plan = sharding.Trial.small(gpus=2, seeds=(0,), variants=("yours",), yours=str(file))
    assert (launch(plan, progress=False).entries("trial")["loss_error"] < 1e-5).all()


def test_functions_that_are_right_on_the_cases_alone_are_seen_in_the_training(tmp_path):
    text = written(
        (
            "    for number,",
            "    micro_batches = micro_batches[:2] if tokens_of(micro_batches) > 6 else micro_batches\n    for number,",
        )
    )
    (file := tmp_path / "sharding_sharded_step.py").write_text(
        f"{text}\n\ndef tokens_of(micro_batches):\n    return micro_batches[0][0].shape[1]\n"
    )
    plan = sharding.Trial.small(gpus=2, seeds=(0,), variants=("yours",), yours=str(file))
    assert [*judge_run(launch(plan, progress=False)).faults] == ["wrong"]
