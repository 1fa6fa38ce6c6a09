"""Real launches on one process: batches and rungs are measured; each optimizer's bug is named."""

import pytest

from labkit.launching import launch
from lessons import one_gpu
from lessons.one_gpu.exercises import verdict_of
from lessons.one_gpu.plan import LADDER, VARIANTS


@pytest.mark.slow
def test_batches_and_rungs_without_a_gpu():
    table = one_gpu.batches(launch(one_gpu.Batches.small(repeats=1), progress=False))
    assert table["micro_batch"].tolist() == [1, 2, 4, 8]
    assert (table["tokens_per_s"] > 0).all() and table["peak_mib"].isna().all()
    assert table["predicted_mib"].is_monotonic_increasing
    table = one_gpu.ladder(launch(one_gpu.Ladder.small(repeats=1, rungs=tuple(LADDER)), progress=False))
    of_gpus = {"torch.compile", "one graph", "by hand", "float8 products"}
    assert table["knob"].tolist() == [name for name in LADDER if name not in of_gpus]
    assert table["batch"].tolist() == [2] * 6 + [8] and (table["tokens_per_s"] > 0).all()


def test_each_bug_is_named_by_its_row():
    table = one_gpu.symptoms(launch(one_gpu.Trial.small(gpus=1, variants=VARIANTS), progress=False))
    found = {row["variant"]: {*verdict_of(row).faults} for row in table.to_dict("records")}
    assert found == {"right": set()} | {name: {name} for name in VARIANTS[1:]}
    right = table.set_index("variant").loc["right"]
    assert right.to_list() == pytest.approx([1, 1, 1, 1], rel=0.1), "as float32 copies, but for the rounded weights"
