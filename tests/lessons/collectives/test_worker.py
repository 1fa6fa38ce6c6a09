"""Real launches of lab 09: every collective verified on 2 and 3 ranks, the ring equal to the library, bugs caught."""

import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from labkit.launching import launch
from labkit.theory.sizes import GIB, MIB
from lessons import collectives
from lessons.collectives.theory import COLLECTIVES
from lessons.collectives.worker import calls, nccl_tests, timing
from lessons.collectives.worker.calls import CALLS

CPU = torch.device("cpu")
PRINTED = Path(__file__).parents[2] / "fixtures" / "nccl-tests"
ALL_REDUCE = (PRINTED / "all_reduce.txt").read_text()
SIZES = [64 * MIB, 256 * MIB, GIB]

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.mark.parametrize("gpus", [2, 3])
@pytest.mark.slow
def test_every_collective_is_right(gpus):
    plan = collectives.Sweep.small(gpus=gpus, sizes_kib=(1, 64), repeats=2)
    rows = launch(plan, progress=False).rows
    assert len(rows) == len(plan.points()) == (gpus - 1) * len(COLLECTIVES) * 2
    assert (rows["status"] == "ok").all(), rows
    assert (rows["rank"] == 0).all() and (rows["repeats"] == 2).all()
    assert (rows["low_seconds"] <= rows["seconds"]).all() and (rows["seconds"] <= rows["high_seconds"]).all()
    assert (rows[["low_seconds", "first_seconds"]] > 0).all(axis=None)
    shared = rows[rows["collective"].isin(["all-gather", "reduce-scatter", "all-to-all"])]
    assert (shared["message_bytes"] == shared["bytes"] // 4 // shared["ranks"] * shared["ranks"] * 4).all()
    assert (rows.drop(shared.index)["message_bytes"] == rows.drop(shared.index)["bytes"]).all()


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("rank", range(3))
def test_values_differ_by_rank_and_place_and_are_exact(collective, rank):
    call = CALLS[collective](rank, 3, 1200, CPU, None)
    others = [CALLS[collective](other, 3, 1200, CPU, None) for other in range(3) if other != rank]
    assert all((call.start != other.start).all() for other in others)
    assert call.due.max() < 2**24 and call.due.min() > 0
    assert len(call.due[:400].unique()) > 390


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_collective_that_does_nothing_or_one_thing_wrong_is_seen(collective):
    call = CALLS[collective](1, 3, 1200, CPU, None)
    own = 400 if collective == "all-gather" else 0  # its own share is there before
    assert call.wrong(lambda: None) == len(call.result) - own
    assert call.wrong(lambda: call.result.copy_(call.due)) == 0

    def nearly() -> None:
        call.result.copy_(call.due.roll(1))

    assert call.wrong(nearly) > 0.99 * len(call.result), "the right values in the wrong place"

    def slip() -> None:
        call.result.copy_(call.due)
        call.result[-1] += 1

    assert call.wrong(slip) == 1


@pytest.mark.parametrize(("own", "others", "status"), [(0, 0, "ok"), (1, 0, "wrong result"), (0, 1, "wrong result")])
def test_one_wrong_element_on_any_rank_is_a_wrong_result(monkeypatch, own, others, status):
    found = iter([0, 0, own, 0, 0])
    call = SimpleNamespace(
        work=lambda: None, many=lambda calls: None, wrong=lambda work: next(found), device=CPU, message_bytes=4
    )
    worker = SimpleNamespace(synchronize=lambda: None, plan=SimpleNamespace(warm_ups=1, repeats=4))

    def all_reduce(values, op, group):
        if len(values) > 1 and op == dist.ReduceOp.MAX:
            values.copy_(torch.maximum(values, torch.tensor([3.0, others, 99.0, 2.0, 8.0, 6.0, 4.0])))

    monkeypatch.setattr(timing.dist, "all_reduce", all_reduce)
    row = timing.timing_fields(worker, SimpleNamespace(clock="in flight", in_flight=2), call, None)
    assert row["status"] == status
    assert row["first_seconds"] == 3, "the slowest rank counts"
    assert (row["seconds"], row["repeats"]) == (5.0, 4), "the warm-up's 99 s are in no median"
    assert (row["low_seconds"], row["high_seconds"]) == (3.5, 6.5)


def test_the_ring_by_hand_equals_the_library_and_sends_the_formulas_bytes():
    run = launch(collectives.Ring.small(gpus=3, repeats=2, lengths=(1, 2, 1000, 4097)), progress=False)
    table = collectives.rings(run)
    assert (table["status"] == "ok").all(), table
    assert table[["ranks", "elements"]].to_numpy().tolist() == [[n, m] for n in (2, 3) for m in (1, 2, 1000, 4097)]
    assert (table["sent_bytes"] == table["formula_bytes"]).all()
    assert table["times"].gt(0).all()


def test_what_nccl_tests_prints_is_read():
    (first, in_place), *_, last = nccl_tests.parse(ALL_REDUCE, SIZES)
    assert first == (64 * MIB, "out of place", pytest.approx(250.2e-6), 268.24, 0)
    assert in_place == (64 * MIB, "in place", pytest.approx(249.6e-6), 268.83, 0)
    assert last[1].bus_gb_per_s == 328.32
    assert nccl_tests.version(ALL_REDUCE) == "", "old ones do not say which they are"
    newer = "# nccl-tests version 2.18.3 nccl-headers=22809 nccl-library=22809\n" + ALL_REDUCE
    assert nccl_tests.version(newer) == "2.18.3 nccl-headers=22809 nccl-library=22809"
    assert nccl_tests.parse(newer, SIZES) == nccl_tests.parse(ALL_REDUCE, SIZES)
    line, *_ = nccl_tests.parse((PRINTED / "alltoall.txt").read_text(), SIZES)
    assert [half.wrong for half in line] == [0, None], "an all-to-all in place is not checked"
    nameless = ALL_REDUCE.replace("     sum      -1", "              -1")
    assert nccl_tests.parse(nameless, SIZES) == nccl_tests.parse(ALL_REDUCE, SIZES), "old ones name no operation"
    wrong = ALL_REDUCE.replace("268.24      0", "268.24     12")
    assert nccl_tests.parse(wrong, SIZES)[0][0].wrong == 12
    assert nccl_tests.parse(ALL_REDUCE.replace("  1073741824  ", "  1073741808  "), SIZES)[2][0].message_bytes < GIB


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("# Using devices", "Segmentation fault", "none of its table: 'Segmentation fault'"),
        ("# Out of bounds", "# Out of", "printed 3 sizes of 3 and no end"),
        ("    250.2", "      ???", r"a line with no numbers: '67108864 .* \?\?\? .*'"),
        ("  250.2  268.24", "", "none of its table: '67108864 "),
        ("  268435456  ", "  268000000x ", "none of its table: '268000000x"),
        ("  268435456  ", "  168435456  ", "printed 168435456 bytes, not 268435456"),
    ],
)
def test_a_line_that_is_not_understood_is_quoted(old, new, says):
    assert old in ALL_REDUCE
    with pytest.raises(ValueError, match=says):
        nccl_tests.parse(ALL_REDUCE.replace(old, new, 1), SIZES)


def test_missing_lines_are_missed():
    with pytest.raises(ValueError, match=r"nccl-tests printed 3 sizes of 4$"):
        nccl_tests.parse(ALL_REDUCE, [*SIZES, 4 * GIB])
    last_words = ALL_REDUCE + "a warning of NCCL's\n"
    assert nccl_tests.parse(last_words, SIZES) == nccl_tests.parse(ALL_REDUCE, SIZES)


STAND_IN = """#!{python}
import sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if {fails}:
    sys.exit("Test NCCL failure common.cu:1020 'unhandled cuda error'")
assert sorted(options) == ["-b", "-e", "-f", "-g", "-n", "-t", "-w"] and options["-g"] == "1", options
print("# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809")
size = int(options["-b"])
while size <= int(options["-e"]):
    half = f"  {{size / 1e9 * 1e6:7.1f}}    1.00    0.50       {wrong}"
    print(f"{{size:12d}}  {{size // 4:12d}}     float    none      -1{{half}}{{half}}")
    size *= int(options["-f"])
print("# Out of bounds values : 0 OK")
"""


def stand_in(program: Path, *, fails: bool = False, wrong: int = 0) -> None:
    """Write a program that prints such a table as nccl-tests does, of 1 GB/s."""
    program.write_text(STAND_IN.format(python=sys.executable, fails=fails, wrong=wrong), encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """A run beside four programs: one does well, one is missing, one fails, one finds wrong results."""
    folder = tmp_path_factory.mktemp("perf")
    stand_in(folder / "all_gather_perf")
    stand_in(folder / "all_reduce_perf", fails=True)
    stand_in(folder / "reduce_scatter_perf", wrong=3)
    four = ("all-gather", "broadcast", "all-reduce", "reduce-scatter")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_NCCL_TESTS", str(folder))
        patch.setenv("LABKIT_RUNS", str(tmp_path_factory.mktemp("runs")))
        plan = collectives.NcclTests.small(collectives=four, sizes_kib=(64, 256), repeats=2)
        yield launch(plan, progress=False)


def test_nccl_tests_run_beside_ours_where_they_are_found(beside):
    table = collectives.against(beside)
    assert table["collective"].value_counts().to_dict() == dict.fromkeys(beside.plan.collectives, 2)
    found = table[table["collective"] == "all-gather"]
    assert found["theirs_gb_per_s"].tolist() == [0.5, 0.5] and set(found["status"]) == {"ok"}
    assert found["ratio"].to_list() == pytest.approx((found["ours_gb_per_s"] / 0.5).to_list())
    missing = table[table["collective"] == "broadcast"]
    assert missing["ratio"].isna().all() and set(missing["status"]) == {"not installed"}
    assert set(missing["said"]) == {"no broadcast_perf was found"}
    assert table.attrs["installed"] and table.attrs["version"].startswith("2.17.6")
    rows = beside.rows[beside.rows["collective"] == "all-gather"]
    theirs = rows[(rows["source"] == "nccl-tests") & rows["seconds"].notna()]
    assert theirs[["bytes", "placement"]].to_numpy().tolist() == [
        [kib * 1024, where] for kib in (64, 256) for where in ("out of place", "in place")
    ]


def test_a_program_that_fails_is_told_and_the_run_goes_on(beside):
    table = collectives.against(beside)
    failed = table[table["collective"] == "all-reduce"]
    assert failed["status"].tolist() == 2 * ["failed"]
    assert set(failed["said"]) == {
        "all_reduce_perf ended with status 1; it said: Test NCCL failure common.cu:1020 'unhandled cuda error'"
    }


def test_a_result_that_nccl_tests_finds_wrong_is_no_measurement(beside):
    table = collectives.against(beside)
    wrong = table[table["collective"] == "reduce-scatter"]
    assert wrong["status"].tolist() == 2 * ["wrong result"] and wrong["ratio"].isna().all()


def test_a_program_that_hangs_is_ended(tmp_path, monkeypatch):
    program = tmp_path / "all_reduce_perf"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o700)
    monkeypatch.setattr(nccl_tests, "LIMIT_S", 0.3)
    with pytest.raises(ValueError, match=r"all_reduce_perf was not done in 0.3 s"):
        nccl_tests.run(str(program), 2, MIB, MIB, 2, 20)


def test_nothing_to_send_is_not_sent(monkeypatch):
    asked = []
    monkeypatch.setattr(calls.dist, "P2POp", lambda op, tensor, peer, group: SimpleNamespace(tensor=tensor, peer=peer))
    monkeypatch.setattr(calls.dist, "batch_isend_irecv", lambda moves: asked.append([m.peer for m in moves]) or [])
    empty, some = torch.empty(0), torch.empty(3)
    for given, room in ((empty, empty), (some, empty), (empty, some), (some, some)):
        calls.exchange(given, room, 1, 3, None)
    assert asked == [[2], [0], [2, 0]]
