"""Each sentence of lab 02 follows its table: said where the claim holds, its opposite where it does not."""

import pandas as pd
import pytest
from made import attributed

from labkit.labs import broadcast
from labkit.story.words import SMALL_NOTE

NAN = float("nan")


def methods(*rows, small=False):
    """Give a methods table from (method, memory, chunks, seconds, spread, and what differs from a good row)."""
    made = [
        {
            "method": method,
            "memory": memory,
            "chunks": chunks,
            "seconds": seconds,
            "spread_seconds": spread,
            "status": "ok",
            "verdict": "ok",
            "share_of_links": 0.0213 / seconds,
        }
        | more
        for method, memory, chunks, seconds, spread, more in rows
    ]
    return attributed(made, small=small)


LINKS = ("links", "pinned", 1, 0.0213, 0.0001, {"share_of_links": 1.0})
DIRECT = ("direct", "pinned", 1, 0.083, 0.001, {})
PIPED = ("pipelined", "pinned", 32, 0.079, 0.001, {})
SCATTER = ("scatter_all_gather", "pinned", 16, 0.0217, 0.0001, {})
WRONG = ("staged", "pinned", 1, NAN, NAN, {"status": "wrong copy on GPU 2", "verdict": "not measured"})


@pytest.mark.parametrize(
    ("table", "said", "unsaid"),
    [
        (
            methods(LINKS, DIRECT, PIPED, SCATTER),
            (
                "**scatter + all-gather (pinned, 16 chunks)** was fastest: 21.7 ms, 3.8× as fast as the "
                "slowest, direct (pinned)",
                "1.02× the time that all host links",
                ": only 1.9 % above the limit",
                "all 4 settings was compared with the source, and equal",
            ),
            "not resolved",
        ),
        (methods(LINKS, DIRECT, PIPED), ("3.71× the time", ": 271 % above the limit"), "only"),
        (methods(LINKS, DIRECT, (*PIPED[:4], 0.004, {})), ("is faster is not resolved by these data",), "was fastest"),
        (methods(LINKS, DIRECT, (*PIPED[:3], 0.083, 0.001, {})), ("not resolved by these data",), "was fastest"),
        (methods(LINKS, PIPED, SCATTER, WRONG), ("1 setting(s) failed (wrong copy on GPU 2)",), "and equal"),
        (methods(LINKS, WRONG), ("No setting brought right copies",), "fastest"),
        (methods(LINKS, PIPED), ("One setting was right, pipelined (pinned, 32 chunks): 79.0 ms.",), "fast as"),
        (
            methods(LINKS, PIPED, (*SCATTER[:5], {"verdict": "impossible"})),
            ("1 time(s) beat the datasheet",),
            "wrong copy",
        ),
        (methods(DIRECT, (*PIPED[:5], {"share_of_links": NAN}), small=True), (SMALL_NOTE,), "host links"),
    ],
)
def test_methods(table, said, unsaid):
    text = broadcast.explain_methods(table).data
    assert all(part in text for part in said), text
    assert unsaid not in text


def ablation(direct, pipelined, scatter=(0.418, 0.0217), small=False):
    rows = [("direct", *direct), ("pipelined", *pipelined), ("scatter_all_gather", *scatter)]
    table = pd.DataFrame(rows, columns=["method", "pageable_seconds", "pinned_seconds"])
    table["pinning_gain"] = table["pageable_seconds"] / table["pinned_seconds"]
    table["path_gain"] = direct[1] / table["pinned_seconds"]
    table.attrs["small"] = small
    return table


@pytest.mark.parametrize(
    ("table", "said", "unsaid"),
    [
        (
            ablation((1.66, 0.083), (0.42, 0.079)),
            (
                "falls 21×",
                "**Pinning, not topology, made the difference**: 20× by pinning, then 1.1× by the path",
                "Left in pageable memory, the same path gains 4.0×",
                "where the path does count: 3.6× over pipelined",
                "A single copy gains 5.3× by pinning; direct gains 3.8× more, because a pageable copy blocks the",
            ),
            "did more",
        ),
        (
            ablation((1.0, 0.25), (0.3, 0.1)),
            ("**Pinning did more than the path**: 4.0× by pinning, then 2.5×",),
            "blocks the calling",
        ),
        (ablation((1.0, 0.95), (0.3, 0.2)), ("**The path, not pinning, made the difference**",), "Pinning, not"),
        (
            ablation((1.0, 0.5), (0.2, 0.1)),
            ("**The path did more than pinning**: 2.0× by pinning, then 5.0×",),
            "not pinning",
        ),
        (ablation((1.0, 0.5), (0.4, 0.25)), ("did about the same: 2.0× by pinning, then 2.0×",), "**"),
        (ablation((1.0, 0.5), (0.5, 0.25)), ("did about the same",), "Left in pageable"),
        (
            ablation((1.66, 0.083), (0.42, 0.079), (0.4, 0.078)),
            ("gained nothing here (1.0× over pipelined)",),
            "does count",
        ),
        (ablation((1.66, 0.083), (0.42, 0.079), (0.4, NAN)), ("Pinning, not topology",), "catter"),
        (
            ablation((1.0, NAN), (0.9, NAN), (0.8, NAN), small=True),
            ("Nothing was pinned in this run", SMALL_NOTE),
            "topology",
        ),
        (ablation((1.0, 0.5), (0.9, NAN)), ("lacks direct or pipelined",), "did about"),
        (ablation((NAN, 0.5), (0.9, 0.4)), ("lacks direct or pipelined",), "did about"),
    ],
)
def test_pinning(table, said, unsaid):
    text = broadcast.explain_pinning(table).data
    assert all(part in text for part in said), text
    assert unsaid not in text


def chunks(seconds, method="pipelined", memory="pinned", spread=0.0005):
    rows = [(method, memory, c, s, spread, {}) for c, s in seconds.items()]
    return methods(*rows) if rows else methods(PIPED).iloc[:0]


@pytest.mark.parametrize(
    ("table", "said", "unsaid"),
    [
        (
            chunks({4: 0.0865, 32: 0.079, 128: 0.082}),
            ("From pinned memory: Pipelined was best with **32 chunks** (fewer overlap less", "4 take 9.5 % more"),
            "fewest:",
        ),
        (chunks({4: 0.07, 32: 0.079, 128: 0.082}), ("**4 chunks** (the fewest: chunks cost more",), "fewer overlap"),
        (chunks({4: 0.09, 32: 0.085, 128: 0.082}), ("**128 chunks** (the most that were tried)",), "fewest"),
        (
            chunks({4: 0.0865, 32: 0.079}, spread=0.004),
            ("For pipelined the number of chunks makes no difference",),
            "best",
        ),
        (
            chunks({4: 0.09, 32: 0.0788, 64: 0.0787, 128: 0.0788}),
            ("; 32 to 128 are within 1.0 % of it; 4 take 14 % more",),
            "resolve",
        ),
        (chunks({4: 0.08, 32: 0.08}), ("makes no difference that these data resolve",), "best"),
        (chunks({16: 0.08}), ("Pipelined was run with 16 chunks only.",), "best"),
        (chunks({4: 0.08, 32: NAN}), ("with 4 chunks only",), "best"),
        (chunks({4: NAN}), ("No chunked broadcast was measured.",), "best"),
        (chunks({}), ("No chunked broadcast was measured.",), "best"),
        (chunks({4: 0.02, 16: 0.03}, memory="pageable"), ("**4 chunks**", "50 % more"), "resolve"),
    ],
)
def test_chunks(table, said, unsaid):
    table.attrs["small"] = False
    text = broadcast.explain_chunks(table).data
    assert all(part in text for part in said), text
    assert unsaid not in text


def test_chunks_are_told_a_method_and_of_pinned_memory_where_there_is():
    slow = chunks({4: 0.42, 32: 0.40}, memory="pageable")
    other = chunks({4: 0.024, 32: 0.0217}, method="scatter_all_gather", spread=0.0001)
    table = pd.concat([slow, chunks({4: 0.08, 32: 0.08}), other])
    table.attrs["small"] = False
    text = broadcast.explain_chunks(table).data
    assert "For pipelined the number" in text
    assert "Scatter + all-gather was best with **32 chunks**" in text


def lanes(method, hosts=1):
    rows = [{"kind": "host", "lane": f"host → {gpu}"} for gpu in range(hosts)] + [{"kind": "peer", "lane": "0 → 1"}]
    return attributed(rows, method=method, small=False)


@pytest.mark.parametrize(
    ("share", "table", "said", "unsaid"),
    [
        (
            0.93,
            lanes("pipelined"),
            "**93 % of the forwarding time was hidden** behind copies from the host. 1 host link was in use",
            "only",
        ),
        (0.12, lanes("scatter_all_gather", 4), "only 12 % of the forwarding time was hidden", "**"),
        (0.12, lanes("scatter_all_gather", 4), "4 host links were in use", "link was"),
        (0.0, lanes("staged"), "In staged, only 0 % of", "**"),
        (NAN, lanes("links", 4), "In links, nothing was forwarded", "hidden"),
    ],
)
def test_overlap(share, table, said, unsaid):
    text = broadcast.explain_overlap(share, table).data
    assert said in text
    assert unsaid not in text


def ladder(*readings):
    rows = [
        {"method": method, "reading": reading, "copy_gb_per_s": rate}
        for method, reading, rate in zip(("direct", "staged", "pipelined"), readings, (11.4, 10.6, 41.7), strict=True)
    ]
    return attributed(rows, pageable=9.65, pinned=39.0)


@pytest.mark.parametrize(
    ("table", "said", "unsaid"),
    [
        (
            ladder("pageable", "pageable", "pinned"),
            (
                "their pipelined figures (41.7 GB/s through one host link) fit only pinned memory",
                "direct and staged figures (10.6 to 11.4 GB/s) fit pageable",
                "**The step to pipelined changed two things at once**",
            ),
            "path alone",
        ),
        (
            ladder("pageable", "pinned", "pinned"),
            ("**The step to staged and pipelined changed two things",),
            "path alone",
        ),
        (
            ladder("pageable", "pageable", "pageable"),
            ("All of the reports' figures fit pageable memory", "the path alone"),
            "two things",
        ),
        (ladder("pinned", "pinned", "pinned"), ("All of the reports' figures fit pinned memory",), "two things"),
    ],
)
def test_ladder(table, said, unsaid):
    text = broadcast.doubt_ladder(table).data
    assert all(part in text for part in said), text
    assert unsaid not in text
