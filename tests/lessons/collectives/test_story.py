"""Each verdict of lab 09 follows its table: said where it holds, its opposite where it does not."""

import pytest
from made_collectives import made_ring, made_sweep, made_tests

from labkit.theory.sizes import GIB, MIB
from lessons import collectives


def bent(where, factor):
    """Give times that are `factor` as long where `where` says so, by bytes and knobs."""
    return lambda size, took, knobs: took * (factor if where(size, knobs) else 1)


def is_all_reduce(knobs):
    return knobs["collective"] == "all-reduce"


STEEP = {"nccl": (1e-9, 380), "gloo": (1e-9, 2.0)}
FLAT = {"nccl": (5e-6, 1e12), "gloo": (5e-6, 1e12)}
CASES = [
    (collectives.smallest, {}, "up to 256 KiB an all-reduce takes about as long as with 1 KiB, 10.0 µs", "grows"),
    (collectives.smallest, {"lines": STEEP}, "the time grows from the first step on", "about as long"),
    (
        collectives.smallest,
        {"bend": bent(lambda size, knobs: 1024 < size < MIB, 0.5)},
        "up to 256 KiB noise is larger than what the size adds**, so no line is drawn",
        "about as long",
    ),
    (collectives.smallest, {}, "| NCCL | one call, waited for | 30.0", "recorded"),
    (collectives.first_call, {}, "the very first call took 300 µs**, a later one 10.0 µs", "no longer"),
    (
        collectives.first_call,
        {"gpus": 4, "counts": (2, 4)},
        "the very first call took 300 µs**",
        "900",
    ),  # that of two ranks came first
    (collectives.first_call, {"first": 1.5}, "took 15.0 µs, no longer than twice a later one", "**"),
    (collectives.knee, {}, "from 3.62 MiB on, bytes count for more than latency.** One line fits", "too"),
    (collectives.knee, {"lines": FLAT}, "at no size that was measured do bytes", "from"),
    (collectives.knee, {"sizes_kib": (64,)}, "too few sizes", "bytes"),
    (
        collectives.knee,
        {"bend": bent(lambda size, knobs: is_all_reduce(knobs) and size == 4 * MIB, 3)},
        "A single line fits badly: at 4 MiB it is",
        "too long",
    ),
    (
        collectives.knee,
        {"bend": bent(lambda size, knobs: is_all_reduce(knobs) and size == 4 * MIB, 0.3)},
        "too long",
        "too short",
    ),
    (collectives.libraries, {}, "gloo takes 12× the time of NCCL for 1 KiB, 180× for the largest", "noise"),
    (collectives.libraries, {"lines": dict.fromkeys(STEEP, (60e-6, 2.0))}, "1.0×, within noise", "180"),
    (collectives.libraries, {"device": "cpu"}, "One library alone", "gloo"),
    (collectives.reached, {}, "379 GB/s, 79 % of what the links allow", "switch"),
    (
        collectives.reached,
        {"gpus": 4, "bend": bent(lambda size, knobs: is_all_reduce(knobs) and size >= 64 * MIB, 0.75)},
        "all-reduce reaches most, 503 GB/s, 88 % of what the links allow.** It is above a ring's bound, and no error",
        "✘",
    ),
    (collectives.reached, {"status": {"all-to-all": "wrong result"}}, "✘ **17 settings gave wrong values", "switch"),
    (
        collectives.reached,
        {"bend": bent(lambda size, knobs: knobs["collective"] == "broadcast" and size == GIB, 0.1)},
        "✘ **1 settings",
        "no error",
    ),
    (collectives.reached, {"device": "cpu"}, "GB/s.**", "allow."),
    (collectives.reached, {}, "**noise hides the order**; ", "Within"),
    (
        collectives.reached,
        {"bend": bent(lambda size, knobs: knobs["collective"] == "broadcast", 1.5)},
        "Within noise of it: ",
        "hides",
    ),
    (
        collectives.reached,
        {"bend": bent(lambda size, knobs: knobs["collective"] != "broadcast", 1.5)},
        "**broadcast reaches most",
        "noise",
    ),
]


@pytest.mark.parametrize(("tell", "knobs", "said", "unsaid"), CASES)
def test_verdicts_on_bandwidths(tmp_path, tell, knobs, said, unsaid):
    text = tell(collectives.bandwidths(made_sweep(tmp_path / "run", **{"gpus": 2} | knobs))).data
    assert said in text
    assert unsaid not in text


@pytest.mark.parametrize(
    ("knobs", "said", "unsaid"),
    [
        ({}, "✔ **Our ring gives the right sums for every length", "✘"),
        ({}, "On 3 GPUs it takes 2.0× the library's time for 1.00 MiB", "noise"),
        ({"times": lambda elements: 1.01}, "takes the library's time for 1.00 MiB, within noise", "1.0×"),
        ({"sent": lambda right: 2 * right}, "✘ **Our ring sends other bytes", "✔"),
        ({"sent": lambda right: right + (right > 1000)}, "✘ **Our ring sends other bytes", "✔"),  # of one length
        ({"status": "wrong result"}, "✘ **Our ring is wrong** for 1 elements on 2 ranks", "✔"),
    ],
)
def test_same_sums(tmp_path, knobs, said, unsaid):
    table = collectives.rings(made_ring(tmp_path / "run", **knobs))
    text = collectives.same_sums(table, table).data
    assert said in text
    assert unsaid not in text


def test_beside_nccl_tests(tmp_path):
    slow = collectives.against(made_tests(tmp_path / "slow", ratio=lambda name, size: 0.97 if size == GIB else 1.0))
    absent = collectives.against(made_tests(tmp_path / "none", status="not installed"))
    failed = collectives.against(made_tests(tmp_path / "failed", status="failed", said="it ended"))
    assert "our clock gives at least 0.970 of" in collectives.beside_nccl_tests(slow).data
    assert "not installed" in collectives.beside_nccl_tests(absent).data
    assert "our clock gives no comparable part" in collectives.beside_nccl_tests(failed).data


def test_in_one_minute(tmp_path):
    here = {"sweep": made_sweep(tmp_path / "a", gpus=2)}
    flat = {"sweep": made_sweep(tmp_path / "b", gpus=2, device="cpu", lines=FLAT)}
    rows = [line.split(" | ") for line in collectives.in_one_minute(here, flat).data.splitlines()[2:]]
    assert [row[1] for row in rows] == [
        "256 KiB take as long as 1 KiB",
        "knee at 3.62 MiB",
        "all-reduce of 1 GiB: 379 GB/s, 79 % of 478 GB/s",
        "2 ranks: first call 300 µs, later 10.0 µs",
    ]
    assert rows[1][2].strip(" |") == "no knee among these sizes"
    slow = bent(lambda size, knobs: size == 1024, 3)
    odd = {"sweep": made_sweep(tmp_path / "c", gpus=2, first=0.5, bend=slow)}
    told = collectives.in_one_minute(odd, odd).data
    assert "noise is larger than what the size adds" in told and "the first call was not longer" in told
    assert "noise hides the knee" in told and "knee at" not in told
    steep = {"sweep": made_sweep(tmp_path / "d", gpus=2, lines=STEEP)}
    assert "| the time grows from the first step on |" in collectives.in_one_minute(steep, steep).data
