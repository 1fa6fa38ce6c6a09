"""Lab 09's sentences: each claim where its table bears it out, and the opposite where the table shows the opposite."""

import pytest
from made_collectives import MIB, made_ring, made_sweep, made_tests

from labkit.story.words import SMALL_NOTE
from lessons import collectives


def told(explain, run, *more) -> str:
    """Give what a function of bandwidths (and what `more` names) says of a run."""
    return explain(collectives.bandwidths(run), *(table(run) for table in more)).data


def bent(where, factor):
    """Give times that are `factor` as long where `where` says so, by bytes and knobs."""
    return lambda size, took, knobs: took * (factor if where(size, knobs) else 1)


def is_all_reduce(knobs):
    return knobs["collective"] == "all-reduce"


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return made_sweep(tmp_path_factory.mktemp("two") / "run", gpus=2)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    return made_sweep(tmp_path_factory.mktemp("four") / "run", gpus=4, counts=(2, 4))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return made_sweep(tmp_path_factory.mktemp("small") / "run", gpus=2, device="cpu")


def test_large_messages_and_their_share(two):
    said = told(collectives.explain_bandwidth, two, collectives.fits)
    assert said.startswith("**NCCL**, 2 ranks, 1.00 GiB: bus bandwidth from ")
    assert "79 % of what the links allow." in said, "380 of 478 GB/s"
    assert "**gloo**, 2 ranks, 64.0 MiB: bus bandwidth from " in said and "gloo at no size" not in said
    assert "gave the right values, and none beats the links." in said and "above a ring's bound" not in said
    assert "Latency and transfer take equally long at " in said and "for NCCL and at " in said


def test_a_knee_beyond_the_sizes_is_none(tmp_path):
    run = made_sweep(tmp_path / "run", gpus=2, lines={"nccl": (5e-6, 380), "gloo": (1e-9, 2.0)})
    assert "for gloo at no size that was measured" in told(collectives.explain_bandwidth, run, collectives.fits)


def test_a_sum_in_the_switch_is_explained_and_the_impossible_flagged(tmp_path):
    fast = bent(lambda size, knobs: is_all_reduce(knobs) and size >= 64 * MIB, 0.75)
    said = told(collectives.explain_bandwidth, made_sweep(tmp_path / "nvls", gpus=4, bend=fast), collectives.fits)
    assert "are **above a ring's bound**, the 478 GB/s of a GPU's links, and no error: the switch adds" in said
    assert "none beats the links" in said
    absurd = bent(lambda size, knobs: knobs["collective"] == "broadcast" and size >= 64 * MIB, 0.1)
    said = told(collectives.explain_bandwidth, made_sweep(tmp_path / "bad", gpus=4, bend=absurd), collectives.fits)
    assert "**impossible** is the bandwidth of" in said.lower() and "(broadcast)" in said and "none beats" not in said


def test_wrong_values_are_said(tmp_path):
    run = made_sweep(tmp_path / "run", gpus=2, status={"all-to-all": "wrong result"})
    said = told(collectives.explain_bandwidth, run, collectives.fits)
    assert "**wrong result** in " in said.lower() and "(all-to-all)" in said and "gave the right values" not in said


def test_small_messages_are_latency(two):
    said = told(collectives.explain_latency, two)
    assert "2 ranks, 1.00 KiB: an all-reduce takes 10.0 µs in a row, 30.0 µs alone and waited for and 5.00 µs " in said
    assert "would move its bytes in 0.00214 µs: **the rest is latency.**" in said
    assert "a call takes 5.00 µs less: the GPU waits that long for Python and driver." in said
    assert "Up to 256 KiB NCCL's time hardly depends on the size: 256 times the bytes take 1.1× the time." in said
    assert "first call of 1.00 KiB took 300 µs, 30× of a later call: **keep start-up outside the clock.**" in said
    assert said.count("\n\n") == 1 and "\n\n**gloo**" in said, "a paragraph a backend"


def test_latencies_opposites(tmp_path):
    slow = bent(lambda size, knobs: knobs["clock"] == "captured", 3)
    said = told(collectives.explain_latency, made_sweep(tmp_path / "a", gpus=2, bend=slow, first=1.5))
    assert "Replayed it takes 5.01 µs **more**" in said and "waits for Python" not in said
    assert "very first call takes no more than 1.5× of a later call" in said and "start-up" not in said
    same = bent(lambda size, knobs: knobs["clock"] == "captured", 2)
    said = told(collectives.explain_latency, made_sweep(tmp_path / "b", gpus=2, bend=same, spread=0.3))
    assert "the host needs to launch a call is within noise" in said
    steep = made_sweep(tmp_path / "c", gpus=2, lines={"nccl": (1e-9, 380), "gloo": (60e-6, 2)})
    assert "NCCL's time grows with the size from the first step on." in told(collectives.explain_latency, steep)
    wild = bent(lambda size, knobs: size == 16 * 2**10, 3)
    said = told(collectives.explain_latency, made_sweep(tmp_path / "d", gpus=2, bend=wild))
    assert "256 times the bytes take 1.1× the time; on the way times scatter by 3.0×." in said


def fit_told(run) -> str:
    tables = collectives.residuals(run), collectives.fits(run), collectives.bandwidths(run)
    return collectives.explain_fit(*tables, collectives.fits(run, "captured")).data


def growth_told(run, *more) -> str:
    return collectives.explain_growth(collectives.bandwidths(run), collectives.fits(run), *more).data


def test_a_line_that_fits_and_one_that_does_not(two, tmp_path):
    said = fit_told(two)
    assert "**NCCL's all-reduce**, 2 ranks: α = 10.0 µs per call (replayed from a CUDA graph 5.00 µs: 2.50 µs" in said
    assert "**gloo's all-reduce**, 2 ranks: α = 120 µs per call (60.0 µs for each of 2 hops)" in said
    bare = [table(two) for table in (collectives.residuals, collectives.fits, collectives.bandwidths)]
    said_bare = collectives.explain_fit(*bare).data
    assert "per call (it may be mostly the host's, no hop's), β = 380 GB/s" in said_bare
    assert "One line fits every size to within 0.10 %." in said and "protocol" not in said
    assert "Of the 5 other collectives all fit a line to within 10 %." in said
    longer = bent(lambda size, knobs: is_all_reduce(knobs) and size == 4 * MIB, 3)
    run = made_sweep(tmp_path / "run", gpus=2, bend=longer)
    said = fit_told(run)
    assert "**One line does not fit**: at 4.00 MiB it is " in said and "too short: the data do not say why" in said
    assert said.count("protocol") == 1, "gloo has none"
    hidden = bent(lambda size, knobs: is_all_reduce(knobs) and size == 4 * MIB and knobs["clock"] == "in flight", 0.5)
    said = fit_told(made_sweep(tmp_path / "hidden", gpus=2, bend=hidden))
    assert "too long: launching overlaps transfer in flight" in said
    assert "launching overlaps transfer" in said
    stalled = bent(lambda size, knobs: is_all_reduce(knobs) and size == 2**14 and knobs["clock"] == "in flight", 3)
    said = fit_told(made_sweep(tmp_path / "stalled", gpus=2, bend=stalled))
    assert "at 16.0 KiB it is " in said and "protocol" not in said
    assert "**the host sets the time**: replayed from a CUDA graph the call takes 5.04 µs" in said
    kinked = bent(lambda size, knobs: size == 4 * MIB and knobs["collective"] in ("broadcast", "all-gather"), 0.3)
    run = made_sweep(tmp_path / "some", gpus=2, bend=kinked)
    said = fit_told(run)
    assert "Of the 5 other collectives only reduce-scatter, all-to-all and send/recv fit" in said


def test_backends_compared(two, small, tmp_path):
    said = fit_told(two)
    assert "at 1.00 KiB NCCL is 12× as fast (10.0 µs against 121 µs)" in said
    assert "at 64.0 MiB NCCL is " in said
    lame = made_sweep(tmp_path / "a", gpus=2, lines={"nccl": (600e-6, 1.0), "gloo": (60e-6, 2.0)})
    assert "at 1.00 KiB **gloo** is 10× as fast" in fit_told(lame)
    even = made_sweep(tmp_path / "b", gpus=2, lines={"nccl": (60e-6, 2.0), "gloo": (60e-6, 2.0)})
    assert "the two backends differ by no more than noise" in fit_told(even)
    assert "Only gloo was measured" in fit_told(small)
    assert SMALL_NOTE in fit_told(small)


def test_growth_is_told_apart(four, two, tmp_path):
    said = told(collectives.explain_growth, four, collectives.fits)
    assert (
        "**NCCL**, from 2 to 4 ranks: 1.00 KiB takes 3.0× the time, nearer to **latency** and 1.00 GiB takes 1.5×"
        in said
    )
    assert "nearer to **bandwidth**. A ring would grow 3.0× by latency and 1.5× by bandwidth." in said
    tree = bent(lambda size, knobs: knobs["ranks"] == 4 and size == 2**10, 0.45)
    run = made_sweep(tmp_path / "tree", gpus=4, counts=(2, 4), bend=tree)
    assert "1.00 KiB takes 1.3× the time, nearer to **bandwidth**" in told(
        collectives.explain_growth, run, collectives.fits
    )
    crowded = bent(lambda size, knobs: knobs["ranks"] == 4 and size == 2**10, 3)
    run = made_sweep(tmp_path / "crowded", gpus=4, counts=(2, 4), bend=crowded)
    assert "1.00 KiB takes 9.0× the time, **more than either term of a ring**" in told(
        collectives.explain_growth, run, collectives.fits
    )
    vague = made_sweep(tmp_path / "vague", gpus=4, counts=(2, 4), spread=0.8)
    assert "1.00 KiB takes the same time within noise" in told(collectives.explain_growth, vague, collectives.fits)
    said = growth_told(two, collectives.fits(two, "captured"))
    assert "**NCCL** was timed with 2 ranks only. By its hops without the host (2.50 µs each) and its β a ring" in said
    assert "**gloo** was timed with 2 ranks only. By its line a ring of 8 takes 7.0× the time for 1.00 KiB" in said
    assert "**a small message costs hops.**" in said
    slow = made_sweep(tmp_path / "slow", gpus=2, lines={"nccl": (1.0, 380), "gloo": (1.0, 2.0)})
    assert ": hops cost both." in told(collectives.explain_growth, slow, collectives.fits)
    for captured in ((), (collectives.fits(two, "captured").iloc[:0],)):
        said = growth_told(two, *captured)
        assert "Its α in flight may be mostly the host's, no hop's: it predicts no larger ring. **gloo**" in said


def test_a_host_that_launches_slowly_hides_how_a_small_message_grows(tmp_path):
    """In flight about 10 µs whatever the ranks, replayed 1 and 3 µs: the growth in flight is not a ring's."""
    slow = bent(lambda size, knobs: knobs["clock"] == "in flight" and size == 2**10 and knobs["ranks"] == 4, 1.1 / 3)
    host = bent(lambda size, knobs: knobs["clock"] == "captured", 0.2)
    run = made_sweep(
        tmp_path / "run", gpus=4, counts=(2, 4), bend=lambda *setting: host(setting[0], slow(*setting), setting[2])
    )
    said = told(collectives.explain_growth, run, collectives.fits)
    assert "1.00 KiB, whose time is mostly the host's launching, takes 3.0× the time when it is replayed" in said
    assert "1.00 GiB takes 1.5× the time, nearer to **bandwidth**" in said


def ring_told(folder, **run) -> str:
    return collectives.explain_ring(collectives.rings(made_ring(folder, **run))).data


def test_the_ring_by_hand(tmp_path):
    said = ring_told(tmp_path / "a", times=lambda elements: 3.0 if elements > 1 else 1.01)
    assert "gives the right sums on 2 and 3 ranks, 5 of 6 lengths not divisible by them." in said
    assert "A rank sends 2(N − 1)/N of the message, as the formula says, for N = 2 and N = 3." in said
    assert "On 2 ranks it takes 3.0× the library's time for 1.00 MiB and for 4 bytes the" in said
    assert "On 3 ranks it takes " in ring_told(tmp_path / "even", times=lambda elements: 1.01)
    said = ring_told(tmp_path / "b", status="wrong result", sent=lambda right: 1.5 * right)
    assert "**Our ring is wrong** for length 1 on 2 ranks" in said and "right sums" not in said
    assert "**What a rank sends differs from 2(N − 1)/N of the message by 50 %.**" in said


def against_told(folder, **run) -> str:
    return collectives.explain_against(collectives.against(made_tests(folder, **run))).data


def test_against_nccl_tests(tmp_path):
    said = against_told(tmp_path / "met", ratio=0.995)
    assert "from 64.0 MiB up, ours reaches 0.995 of nccl-tests' bus bandwidth." in said
    assert "**The goal, 0.98, is met** by all 6 collectives" in said
    half = {"ratio": lambda collective, size: 0.9 if collective == "broadcast" else 1.0}
    said = against_told(tmp_path / "missed", **half)
    assert "**The goal, 0.98, is missed** by broadcast (0.900 at 64.0 MiB); 5 of 6 collectives meet it." in said
    assert "not resolved" not in said
    said = against_told(tmp_path / "near", ratio=lambda collective, size: 0.97, spread=0.05)
    assert "the miss is within the spread of our times" in said
    assert "**nccl-tests is not installed here**" in against_told(tmp_path / "none", status="not installed", said="no")
    said = against_told(tmp_path / "failed", status="failed", said="it ended with 1")
    assert "Nothing was timed beside nccl-tests from 64.0 MiB up: failed (it ended with 1)." in said
