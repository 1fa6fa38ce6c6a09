"""The check of a student's `timed`, and of benchmarks with a bug: each fault by its kind; some in real launches."""

from random import Random
from types import SimpleNamespace

import pytest
from made_benchmarking import SHOWN, trial_run

from labkit.course import answers
from labkit.course.exercises import cases_of
from labkit.course.source import code_of
from labkit.course.verdict import RAISED, RIGHT, UNANSWERED, WRONG
from labkit.launching import launch
from lessons import benchmarking
from lessons.benchmarking.bugs import SYMPTOMS
from lessons.benchmarking.exercises import check, judge_timed, verdict_of
from lessons.benchmarking.plan import SITUATIONS, VARIANTS
from lessons.benchmarking.worker import try_answer

pytestmark = pytest.mark.usefixtures("elsewhere")

RIGHT_ANSWER = code_of("lessons.benchmarking.solutions.timed")
WARM_UP = ("    for _ in range(3):\n        step()\n", "")
STOP = ("        step()\n        synchronize()\n", "        step()\n")
START = ("    for _ in range(10):\n        synchronize()\n", "    for _ in range(10):\n")
MEAN = ("return middle,", "return statistics.mean(seconds),")
OWN_CLOCK = ("import statistics\n", "import statistics\n    from time import perf_counter\n")


def judged(*swaps: tuple[str, str]):
    """Returns the verdict on the right answer with some of its text replaced, without a launch."""
    text = RIGHT_ANSWER
    for old, new in swaps:
        assert old in text
        text = text.replace(old, new)
    scope: dict = {}
    exec(text, scope)
    rows = []
    for situation in SITUATIONS:
        point = SimpleNamespace(situation=situation)
        worker = SimpleNamespace(state=scope["timed"], record=lambda at=point, **row: rows.append(vars(at) | row))
        try_answer(worker, point)
    return judge_timed(rows, [(situation,) for situation in SITUATIONS])


@pytest.mark.parametrize("seed", range(20))
def test_hidden_cases_alone_tell_the_quartiles_apart(seed):
    cases = cases_of("benchmarking.faster")
    inputs, solution = cases.make(Random(seed)), code_of("lessons.benchmarking.solutions.faster")
    outcomes = {}
    for method in ("inclusive", "exclusive"):
        scope: dict = {}
        exec(solution.replace('method="inclusive"', f'method="{method}"'), scope)
        outcomes[method] = cases.judge([scope["faster"](*arguments) for arguments in inputs], inputs)
    assert outcomes["inclusive"].outcome == RIGHT
    assert {*outcomes["exclusive"].faults} == {"other_quartiles"}
    assert "statistics.quantiles" in outcomes["exclusive"].faults["other_quartiles"]


@pytest.mark.parametrize("method", ['method="inclusive"', 'method="exclusive"'])
@pytest.mark.parametrize("repeats", [8, 10, 20, 31])
def test_a_right_answer_is_right_however_often_it_repeats(method, repeats):
    verdict = judged(('method="inclusive"', method), ("range(10)", f"range({repeats})"))
    assert verdict.outcome == RIGHT, verdict


@pytest.mark.parametrize(
    ("swaps", "kinds"),
    [
        ([STOP], {"unsynchronised"}),
        ([STOP, START], {"unsynchronised"}),
        ([START], {"busy_start"}),
        ([WARM_UP], {"no_warm_up"}),
        ([MEAN], {"mean"}),
        ([WARM_UP, MEAN], {"no_warm_up", "first_inside"}),
        ([("return middle,", "return 1e3 * middle,")], {"unit"}),
        ([("return middle,", "return 1.7 * middle,")], {"value"}),
        ([("(high - low) / 2", "statistics.stdev(seconds)")], {"deviation"}),
        ([("(high - low) / 2", "high - low")], {"whole_range"}),
        ([("(high - low) / 2", "max(seconds)")], {"spread"}),
        ([("range(10)", "range(2)")], {"count"}),
        ([("len(seconds)", "1000")], {"count"}),
        ([("return middle, (high - low) / 2, len(seconds)", "return middle")], {"form"}),
        ([("    import statistics", "    return 0\n    import statistics")], {"form"}),
        ([OWN_CLOCK, ("clock()", "perf_counter()")], {"own_clock"}),
    ],
)
def test_each_wrong_answer_is_named(swaps, kinds):
    verdict = judged(*swaps)
    assert verdict.outcome == WRONG
    assert set(verdict.faults) == kinds, verdict


@pytest.mark.parametrize("returned", ["0.01, 0.001, 10", "None", "object()"])
def test_an_error_that_is_swallowed_is_named(returned):
    body = RIGHT_ANSWER.partition("    for _ in range(3)")[2].rpartition("    return")[0]
    guarded = "".join(f"    {line}\n" for line in f"    for _ in range(3){body}".splitlines())
    text = f"    try:\n{guarded}    except RuntimeError:\n        return {returned}\n"
    verdict = judged((f"    for _ in range(3){body}", text))
    assert set(verdict.faults) == {"swallowed"}, verdict


def test_an_answer_is_launched_and_judged():
    assert check("timed").outcome == UNANSWERED
    answers.save("benchmarking.timed", RIGHT_ANSWER)
    verdict = benchmarking.check("timed")
    assert verdict.outcome == RIGHT, verdict
    assert "benchmarking_timed.py" in verdict.judged
    assert "a forward of `small` takes" in verdict.merits[-1] and "by your clock" in verdict.merits[-1]


def test_an_answer_that_raises_says_where():
    answers.save("benchmarking.timed", "def timed(step, synchronize, clock):\n    return clock() / 0\n")
    verdict = check("timed")
    assert verdict.outcome == RAISED and "ZeroDivisionError" in repr(verdict)
    with pytest.raises(ValueError, match="timed"):
        check("median")


def test_every_benchmark_of_a_launch_is_named_by_its_own_bug():
    run = launch(benchmarking.Trial.small(variants=VARIANTS), progress=False)
    found = {row["variant"]: verdict_of(row) for row in benchmarking.symptoms(run).to_dict("records")}
    assert {name: set(verdict.faults) for name, verdict in found.items()} == {"right": set()} | {
        name: {name} for name in SYMPTOMS
    }
    assert benchmarking.diagnose(run, {}).data.startswith("- **A**: nothing is wrong with it.")


def test_suspects_are_all_bugs_in_an_order_that_says_nothing(tmp_path):
    assert set(benchmarking.suspects()) == set(SYMPTOMS) != list(benchmarking.suspects())
    table = benchmarking.symptoms(trial_run(tmp_path / "trial"))
    assert list(table["variant"]) == list(SHOWN)
