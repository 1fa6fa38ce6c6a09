"""Theory is torch's own practice: shapes, buckets, shards, what is held and sent."""

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertConfig, BertForSequenceClassification

from labkit.theory.memory import ITEMS, ledger
from labkit.theory.shapes import Model, bert, elements, shard
from labkit.theory.traffic import BUCKET, FIRST_BUCKET, Sent, bucket_count, through_a_link, traffic

TINY = Model(before=((4, 2),), block=((6, 2), (6,)), after=((2, 2),), blocks=3, buffers_bytes=40)
BASE = bert(hidden=768, layers=12, vocabulary=30522, positions=512)
SHAPES = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple), min_size=1, max_size=30).map(tuple)


def test_bert_base_is_the_published_model():
    with torch.device("meta"):
        model = BertForSequenceClassification(BertConfig())
    assert [tuple(parameter.shape) for parameter in model.parameters()] == list(BASE.shapes)
    assert sum(buffer.nbytes for buffer in model.buffers()) == BASE.buffers_bytes
    assert BASE.parameters == elements(BASE.root) + 12 * elements(BASE.block) == 109_483_778


def torchs(shapes, element_bytes: int, cap: int, first: int) -> int:
    """Give how many buckets torch makes of gradients that become ready from the last to the first."""
    kind = {2: torch.bfloat16, 4: torch.float32}[element_bytes]
    ready = [torch.empty(shape, dtype=kind, device="meta") for shape in reversed(shapes)]
    return len(dist._compute_bucket_assignment_by_size(ready, [first, cap])[0])


@settings(max_examples=200, deadline=None)
@given(SHAPES, st.sampled_from([2, 4]), st.integers(1, 20_000), st.integers(1, 2_000))
def test_any_gradients_fill_the_buckets_that_torch_makes(shapes, element_bytes, cap, first):
    assert bucket_count(shapes, element_bytes, cap, first) == torchs(shapes, element_bytes, cap, first)


def test_models_fill_the_buckets_that_torch_makes():
    assert dist._DEFAULT_FIRST_BUCKET_BYTES == FIRST_BUCKET
    for model in (BASE, bert(128, 4, 1000, 512), bert(1024, 24, 30522, 512)):
        for element_bytes in (2, 4):
            assert bucket_count(model.shapes, element_bytes) == torchs(
                model.shapes, element_bytes, BUCKET, FIRST_BUCKET
            )
    assert bucket_count(((4,), (4,)), 4, 16, 16) == 2, "a bucket that is just full is closed"


@pytest.mark.parametrize(("ranks", "held"), [(1, 66), (2, 33), (3, 4 + 3 * (4 + 2) + 2), (4, 2 + 3 * (4 + 2) + 2)])
def test_a_shard_is_padded_to_equal_rows(ranks, held):
    assert shard(TINY.shapes, ranks) == held


@given(SHAPES, st.integers(1, 9))
def test_a_shard_has_the_rows_of_torchs_first_chunk(shapes, ranks):
    rows = [torch.empty(shape, device="meta").chunk(ranks)[0].numel() for shape in shapes]
    assert shard(shapes, ranks) == sum(rows)


def test_what_ddp_and_one_gpu_send():
    assert traffic(TINY, "single", 3) == traffic(TINY, "ddp", 1) == []
    assert traffic(TINY, "ddp", 3) == [Sent("all-reduce", 1, 264), Sent("broadcast", 1, 40)]
    assert traffic(TINY, "ddp", 3, synced=2, micro_batches=4) == [Sent("all-reduce", 2, 528), Sent("broadcast", 2, 80)]
    assert traffic(TINY, "ddp", 3, element_bytes=2)[0] == Sent("all-reduce", 1, 132)
    bare = Model(TINY.before, TINY.block, TINY.after, 3)
    assert traffic(bare, "ddp", 3) == [Sent("all-reduce", 1, 264)]


@pytest.mark.parametrize(("ranks", "root", "block"), [(2, 48, 72), (3, 72, 72), (4, 64, 96)])
def test_what_sharded_strategies_send(ranks, root, block):
    """A group's bytes by hand: rows rounded up to the ranks, times what is in a row, times 4."""
    every = root + 3 * block
    assert traffic(TINY, "fsdp_root", ranks) == [Sent("all-gather", 1, every), Sent("reduce-scatter", 1, every)]
    assert traffic(TINY, "fsdp_grad", ranks) == [Sent("all-gather", 4, every), Sent("reduce-scatter", 4, every)]
    twice = Sent("all-gather", 7, root + 6 * block)
    assert traffic(TINY, "fsdp_full", ranks) == [twice, Sent("reduce-scatter", 4, every)]
    four = traffic(TINY, "fsdp_full", ranks, element_bytes=2, synced=1, micro_batches=4)
    assert four == [Sent("all-gather", 28, 2 * (root + 6 * block)), Sent("reduce-scatter", 4, every // 2)]


def test_a_ring_sends_an_all_reduce_twice():
    assert through_a_link([Sent("all-reduce", 9, 100)], 4) == 150
    assert through_a_link([Sent("all-gather", 9, 100), Sent("reduce-scatter", 1, 60)], 4) == 120
    assert through_a_link([Sent("all-reduce", 1, 100)], 1) == 0
    ddp, full = (through_a_link(traffic(BASE, name, 4), 4) for name in ("ddp", "fsdp_full"))
    assert 1.3 < full / ddp < 1.5


PEAKS = [  # strategy, ranks, activations, micro-batches of one exchange → the bytes of ITEMS
    ("single", 1, 999, 1, (264, 0, 528, 999, 0, 0)),
    ("single", 1, 100, 1, (264, 264, 528, 0, 0, 0)),
    ("single", 1, 100, 2, (264, 264, 528, 100, 0, 0)),
    ("ddp", 2, 1, 1, (264, 264, 528, 1, 0, 0)),
    ("fsdp_full", 2, 999, 1, (132, 0, 264, 999, 192, 144)),
    ("fsdp_full", 2, 1, 1, (132, 132, 264, 0, 120, 144)),
    ("ddp", 2, 999, 2, (264, 264, 528, 999, 0, 264)),
    ("fsdp_full", 3, 999, 2, (96, 264, 192, 999, 192, 144)),
    ("fsdp_grad", 2, 999, 1, (132, 0, 264, 999, 264, 72)),
    ("fsdp_grad", 2, 0, 1, (132, 132, 264, 0, 120, 144)),
    ("fsdp_root", 2, 999, 1, (132, 0, 264, 999, 264, 264)),
    ("fsdp_root", 2, 1, 1, (132, 132, 264, 0, 264, 528)),
]


@pytest.mark.parametrize(("strategy", "ranks", "activations", "micro_batches", "held"), PEAKS)
def test_the_ledger_takes_the_fuller_moment(strategy, ranks, activations, micro_batches, held):
    found = ledger(TINY, strategy, ranks, activations, micro_batches=micro_batches)
    assert found == dict(zip(ITEMS, held, strict=True))


def test_gradients_that_are_exchanged_after_each_micro_batch_do_not_wait_whole():
    ddp, full = (ledger(TINY, name, 3, 999, micro_batches=2, exchanges=2) for name in ("ddp", "fsdp_full"))
    assert (ddp["buffers"], full["gradients"]) == (0, 96)


def test_an_update_in_float32_is_a_moment_of_its_own():
    few = ledger(TINY, "ddp", 2, 0, element_bytes=2, state_bytes=12)
    assert few == dict(zip(ITEMS, (132, 264, 792, 0, 0, 0), strict=True))
    sharded = ledger(TINY, "fsdp_full", 3, 0, element_bytes=2, state_bytes=12)
    assert sharded == dict(zip(ITEMS, (48, 48, 288, 0, 60, 72), strict=True)), "the backward's end is fuller"
    many = ledger(TINY, "ddp", 2, 9999, element_bytes=2, state_bytes=12)
    assert many == dict(zip(ITEMS, (132, 132, 792, 9999, 0, 0), strict=True))
