"""`make card ARGS="--soak 4"`: what four recorded minutes at full load say, and what a sick GPU's would."""

import json
import shutil

import pytest
import torch
from matplotlib.colors import same_color

from labkit import launch
from labkit.card.measure import measure_card
from labkit.card.readings import readings
from labkit.card.soak import Soaked, findings_of, sentences, soak_chart, soak_html, soak_of, soaked
from labkit.engine.recordings import replay
from labkit.engine.run import Run
from labkit.report.record import CardRuns, Record
from labkit.repository import RECORDED
from lessons.benchmarking.plan import Soak as SoakPlan
from lessons.benchmarking.worker.soak import Soak

KEPT = RECORDED / "h200x2/benchmarking/soak"


@pytest.fixture
def recorded():
    return replay("h200x2/benchmarking/soak")


@pytest.fixture
def altered(tmp_path):
    """Return a copy of the recorded run, each line of a kind of file changed by a function."""

    def _altered(pattern, change) -> Run:
        folder = shutil.copytree(KEPT, tmp_path / "20261130-094553-benchmarking-soak")
        for file in folder.glob(pattern):
            lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            file.write_text("".join(json.dumps(change(line)) + "\n" for line in lines), encoding="utf-8")
        return Run(folder)

    return _altered


def test_two_sound_gpus_keep_their_rate_and_their_memory(recorded):
    first, second = soaked(recorded)
    assert (first.name, second.name) == ("GPU 0", "GPU 1")
    assert first.first == pytest.approx(678, abs=1) and abs(first.slower_percent) < 1
    assert (first.temperature_c, second.temperature_c) == (60, 66)
    assert first.pattern_gib == 110 and first.by_power > 0.9 and first.by_heat == 0
    assert findings_of(recorded) == []
    said = " ".join(sentences(recorded))
    assert all(part in said for part in ("678 TFLOP/s in the first minute", "GPU 1 was the warmest, 66 °C", "110 GiB"))


@pytest.mark.parametrize(
    ("first", "last", "pace"),
    [(678.0, 678.0, "as fast"), (678.0, 677.9, "as fast"), (678.0, 610.2, "10 % slower"), (600.0, 630.0, "5 % faster")],
)
def test_a_rate_that_did_not_change_is_as_fast(first, last, pace):
    one = Soaked("GPU 0", first, last, temperature_c=60, by_heat=0, by_power=0, pattern_gib=110, wrong_words=0)
    assert one.pace == pace


def test_the_card_judges_the_second_half_of_the_time(recorded):
    (reading,) = readings(recorded)
    assert reading.figure.startswith("matrix product, bfloat16, after minutes") and len(reading.parts) == 2
    assert reading.value == pytest.approx(676, abs=2) and reading.limit == pytest.approx(990, abs=5)


def test_memory_that_lost_words_is_a_fault(altered):
    run = altered("rows-rank1.jsonl", lambda row: row | ({"wrong_words": 3} if "wrong_words" in row else {}))
    assert [str(each) for each in findings_of(run)] == ["GPU 1, memory lost 3 words in 4 minutes of full load"]
    said = " ".join(sentences(run))
    assert "lost 3 words" in said and "held what was written" not in said


def test_a_gpu_that_its_heat_slowed_is_a_fault_with_its_cost(altered):
    def hot(look):
        late = look["gpu"] == 0 and look["at_s"] > 122
        return look | ({"throttle_reasons": ["temperature"], "temperature_c": 91} if late else {})

    run = altered("samples.jsonl", hot)
    for file in run.folder.glob("rows-rank0.jsonl"):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        slowed = [
            row | ({"tflops": 0.9 * row["tflops"]} if row["minute"] > 1 and "tflops" in row else {}) for row in rows
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in slowed), encoding="utf-8")
    (fault,) = findings_of(Run(run.folder))
    assert fault.where == "GPU 0" and "for 45 % of 4 minutes" in fault.detail and "10 % slower" in fault.detail


def test_the_page_shows_a_line_a_gpu_in_three_panels(recorded):
    axes = soak_chart(recorded).axes
    assert len(axes) == 3 and all(len(ax.lines) == 2 for ax in axes)
    assert not same_color(axes[0].lines[0].get_color(), axes[0].lines[1].get_color())
    assert max(axes[2].lines[1].get_ydata()) == 66 and max(axes[0].lines[0].get_xdata()) == pytest.approx(4, abs=0.1)
    page = soak_html(recorded)
    assert "Full load for 4 minutes" in page and "<svg role" in page


def test_processes_multiply_for_the_time_that_was_asked_for():
    run = launch(SoakPlan.small(gpus=2), progress=False)
    assert [each.wrong_words for each in soaked(run)] == [0, 0]
    assert run.rows["at_s"].max() > 2 * 0.3 and "warmest" not in " ".join(sentences(run))


def test_a_word_that_changed_is_counted():
    class Alone:
        plan, device = SoakPlan.small(gpus=1), torch.device("cpu")

    state = Soak(Alone())  # type: ignore[arg-type]
    assert state.chunks and state.wrong_words() == 0
    state.chunks[1][7] += 1
    assert state.wrong_words() == 1


def test_the_soak_comes_last_and_its_run_is_in_the_record(monkeypatch, recorded):
    launched = []
    monkeypatch.setattr(SoakPlan, "full", SoakPlan.small)
    monkeypatch.setattr("labkit.card.measure.card_plans", list)
    monkeypatch.setattr("labkit.card.measure._run_of_plan", lambda plan, progress: launched.append(plan) or recorded)
    result = measure_card(print, soak_minutes=7)
    assert [(plan.name, plan.minutes) for plan in launched] == [("soak", 7)]
    assert result.soak == recorded.folder.name and len(result.readings) == 1
    assert soak_of(Record(card_runs=CardRuns(soak="gone"))) is None and soak_of(Record()) is None
