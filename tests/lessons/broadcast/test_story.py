"""Each verdict of lab 02 follows its table: said where it holds, its opposite where it does not."""

import pandas as pd
import pytest
from made import attributed, broadcast_run, small_broadcast

from lessons import broadcast
from lessons.broadcast.story import middle

NAN = float("nan")


def methods(*rows, small=False):
    """Give a methods table from (method, memory, chunks, seconds, spread, and what differs from a good row)."""
    good = {"status": "ok", "verdict": "ok", "least_seconds": 0.0175}
    names = ("method", "memory", "chunks", "seconds", "spread_seconds")
    return attributed([dict(zip(names, row, strict=False)) | good | row[5] for row in rows], small=small)


LINKS = ("links", "pinned", 1, 0.0213, 0.0001, {})
DIRECT = ("direct", "pinned", 1, 0.083, 0.001, {})
PIPED = ("pipelined", "pinned", 32, 0.079, 0.001, {})
SCATTER = ("scatter_all_gather", "pinned", 16, 0.0217, 0.0001, {})
WRONG = ("staged", "pinned", 1, NAN, NAN, {"status": "wrong copy on GPU 2", "verdict": "not measured"})


@pytest.mark.parametrize(
    ("rows", "said"),
    [((LINKS, DIRECT, SCATTER), "takes 3.8× as long"), ((LINKS, DIRECT), "fewer than two"), ((), "fewer than two")],
)
def test_ways_apart(rows, said):
    table = methods(*rows) if rows else methods(DIRECT).iloc[:0]
    assert said in broadcast.ways_apart(table).data


@pytest.mark.parametrize(
    ("table", "said", "unsaid"),
    [
        (
            methods(LINKS, DIRECT, PIPED, SCATTER),
            ("Fastest: scatter + all-gather, from pinned memory**, 21.7 ms, 1.24 × the datasheet",),
            "noise",
        ),
        (
            methods(LINKS, DIRECT, (*PIPED[:4], 0.004, {})),
            ("within noise: *pipelined* and *direct***, 79.0 to 83.0 ms",),
            "Fast",
        ),
        (methods(LINKS, (*PIPED[:5], {"least_seconds": NAN})), ("pipelined, from pinned memory**, 79.0 ms.",), "data"),
        (methods(LINKS, PIPED, SCATTER, WRONG), ("Fastest: scatter", "Wrong copies, left out: staged."), "noise"),
        (methods(LINKS, WRONG), ("No method brought right copies",), "Fastest"),
        (methods(LINKS, (*SCATTER[:5], {"verdict": "impossible"})), ("beats the datasheet: do not",), "Wrong"),
        (methods(DIRECT, PIPED, small=True), ("CPU processes share one memory",), "Wrong"),
    ],
)
def test_fastest(table, said, unsaid):
    text = broadcast.fastest(table).data
    assert all(part in text for part in said), text
    assert unsaid not in text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ((0, 0), "✔ Every GPU's copy equals the source, by *direct* and *staged*"),
        ((0, 2), "✘ Some GPU's copy differs"),
    ],
)
def test_same_bytes(wrong, said):
    names = [f"methods.{name}" for name in ("direct", "staged")]
    text = broadcast.same_bytes(pd.DataFrame({"function": names, "wrong_repeats": wrong})).data
    assert said in text
    assert ("*direct*" in text) == (wrong == (0, 0))


def ablation(pinning, path):
    """Give the gains of direct by pinning, and of pipelined by its path, as `ablation` names them."""
    rows = [("direct", pinning, 1.0), ("pipelined", NAN, path), ("scatter_all_gather", NAN, 4.0)]
    return pd.DataFrame(rows, columns=["method", "pinning_gain", "path_gain"])


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (ablation(21.0, 1.05), "**Pinning gains more than the path**: direct is 21× as fast from pinned memory, and"),
        (ablation(1.2, 2.5), "**The path gains more than pinning**: direct is 1.2× as fast from pinned memory, and"),
        (ablation(2.0, 2.1), "**Pinning and the path gain the same**"),
        (ablation(21.0, 1.3), "pipelined then 1.3× as fast as that"),
        (ablation(NAN, 1.05), "cannot separate the two causes"),
        (ablation(21.0, NAN), "cannot separate the two causes"),
        (ablation(21.0, 1.05).query("method != 'pipelined'"), "cannot separate the two causes"),
    ],
)
def test_memory_or_path(table, said):
    assert said in broadcast.memory_or_path(table).data


def test_hidden():
    here, recorded = (attributed([{}], hidden=share, source=f"run {share}") for share in (0.5, 0.75))
    said = "**Hidden of the time of copies between GPUs: "
    assert said + "50 % here and 75 % in the recorded run.**" in broadcast.hidden(here, recorded).data
    assert said + "75 % in the recorded run.**" in broadcast.hidden(recorded, recorded).data


def chunks(seconds, method="scatter_all_gather"):
    rows = [(method, "pinned", count, time, 0.0005, {}) for count, time in seconds.items()]
    return broadcast.chunk_sweep(attributed(methods(*rows).to_dict("records"), source="made"))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (chunks({4: 1.2, 8: 1.05, 16: 1.0, 32: 1.09, 64: 1.3}), "**8 to 32** chunks take the same time within 10 %."),
        (chunks({4: 1.05, 8: 1.0}), "**4 to 8** chunks take the same time within 10 %: all counts that were run."),
        (chunks({4: 1.2, 8: 1.0, 16: 1.3}), "only **8** chunks come within 10 %"),
        (chunks({4: 1.05, 8: 1.5, 16: 1.0}), "only **16** chunks"),
        (chunks({4: NAN}), "No broadcast in chunks"),
    ],
)
def test_best_chunks(table, said):
    assert said in broadcast.best_chunks(table).data


def test_the_fastest_method_decides():
    tables = chunks({4: 1.0, 8: 1.2}, "pipelined"), chunks({4: 0.5, 8: 0.4})
    both = pd.DataFrame([row for table in tables for row in table.to_dict("records")])
    assert "For scatter + all-gather, only **8**" in broadcast.best_chunks(both).data
    assert middle(both[both["method"] == "pipelined"]) == (4, 4)


def test_one_minute_shows_this_run_beside_the_recorded_one(tmp_path):
    here, recorded = small_broadcast(tmp_path / "here"), broadcast_run(tmp_path / "recorded")
    lines = broadcast.in_one_minute(here, recorded).data.splitlines()
    assert lines[0] == "| rule | here | recorded |"
    assert lines[2] == "| Pin what a GPU pulls | no GPU to pin for | direct is 20× as fast |"
    assert lines[3].endswith("| 1.0× as fast as all through one link | 3.6× as fast as all through one link |")
    assert "hidden" in lines[4] and lines[5].endswith("chunks |")
