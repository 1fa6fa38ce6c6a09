"""Cards by date: which are compared, what changed beyond noise and with which conditions, and the trends."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from loaded import from_elsewhere
from made import copies_run, hello_run
from made_card import CALL, PAIR, card, reading

from labkit.card.cards import CardError
from labkit.card.compare import changed_conditions, changes, chosen_cards, comparison_text, main
from labkit.card.formats import write_card
from labkit.card.history import find_card, history
from labkit.card.trends import series, series_figure, trends_html
from labkit.repository import REPOSITORY


@pytest.fixture
def report(tmp_path):
    """Return a report with two kept ones before it: the pair's rate falls in the last."""
    for name, value in (("reports/20261120-100000", 390.0), ("reports/20261121-100000", 391.0), ("report", 360.0)):
        date = {"report": "2026-11-22T10:00:00"}.get(name, f"2026-11-{name[14:16]}T10:00:00")
        (tmp_path / name).mkdir(parents=True)
        write_card(card(reading(value=value, date=date, run=name), date=date), tmp_path / name)
    return tmp_path / "report"


@pytest.mark.parametrize(
    ("second", "kind"),
    [(392.0, "within noise"), (398.5, "within noise"), (399.5, "better"), (380.5, "worse"), (381.5, "within noise")],
)
def test_a_change_is_told_where_it_leaves_the_fence_of_the_first(second, kind):
    (one,) = changes(card(reading()), card(reading(value=second)))
    assert one.kind == kind


def test_a_figure_without_quartiles_has_no_spread():
    (one,) = changes(_without_quartiles(100.0), _without_quartiles(60.0))
    assert one.kind == "worse" and one.noise == pytest.approx(2.0, abs=0.05)  # what clocks resolve


def _without_quartiles(value: float):
    made = card(reading(value=value))
    return replace(made, rows=tuple(replace(row, low=row.value, high=row.value) for row in made.rows))


def test_a_shorter_time_is_better():
    first, second, third = (card(reading(CALL, value, 1.0, limit=None)) for value in (140.0, 90.0, 60.0))
    assert [one.kind for one in changes(first, second)] == ["within noise"]  # one node, minutes apart, showed as much
    assert [one.kind for one in changes(first, third)] == ["better"]


def test_figures_of_different_settings_are_not_compared():
    assert changes(card(reading()), card(reading(setting="16 MiB"))) == []


def test_a_figure_of_the_same_run_was_not_measured_again_and_is_told_so():
    """A report keeps what is not run again: a run that stands beside itself shows no change."""
    kept = reading(CALL, 90.0, 1.0, limit=None, run="kept")
    first, second = card(reading(value=390.0), kept), card(reading(value=360.0), kept)
    assert [one.first.key for one in changes(first, second)] == [PAIR]
    said = comparison_text(first, second, ("a", "b"))
    summary = "2 key figures in both: 1 changed beyond noise, 0 within noise, 1 not measured again"
    assert f"{summary} (both show the same run)\n  collectives: {CALL[1]}" in said
    assert "not measured again" not in comparison_text(card(reading()), card(reading(run="another")), ("a", "b"))


def test_changed_conditions_are_driver_versions_clocks_neighbours_and_the_host():
    before = {"sm_clock_mhz": 1980.0, "enqueue_us": 7.0, "throttled_percent": 0.0, "other_processes": 0}
    after = {"sm_clock_mhz": 1500.0, "enqueue_us": 11.0, "throttled_percent": 60.0, "other_processes": 2}
    first, second = (card(reading(conditions=known)) for known in (before, after))
    second = replace(
        second, node=second.node | {"driver": "590.1", "versions": {"python": "3.11.9", "torch": "2.13.0"}}
    )
    lines = changed_conditions(first, second)
    for part in (
        "driver: none → 590.1",
        "torch: none → 2.13.0",
        "1980 MHz → 1500 MHz",
        "7 µs → 11 µs",
        "0 % → 60 %",
        ": 0 → 2",
    ):
        assert any(part in line for line in lines), (part, lines)
    assert changed_conditions(first, first) == []
    moved, old = (replace(first, node=first.node | {"host": host}) for host in ("another", ""))
    assert changed_conditions(first, moved) == [f"the host: {first.node['host']} → another"]
    assert changed_conditions(first, old) == []
    unknown = card(reading(conditions={"enqueue_us": 7.0}))
    assert changed_conditions(unknown, card(reading(conditions=after | {"enqueue_us": 7.0}))) == [], "no zero"
    little = card(reading(conditions=before | {"enqueue_us": 9.0, "sm_clock_mhz": 1965.0}))
    assert changed_conditions(first, little) == []


def test_only_conditions_of_the_figures_that_are_compared_count():
    hot = reading(CALL, 90.0, 1.0, limit=None, run="another", conditions={"throttled_percent": 60.0})
    calm = {"throttled_percent": 0.0}
    first, second = card(reading(conditions=calm)), card(reading(conditions=calm), hot)
    assert second.conditions["throttled_percent"] == 60.0
    assert changed_conditions(first, second) == []


def test_processes_that_waited_for_a_core_are_a_changed_condition():
    shares = {"quiet": 0.3, "usual": 20.0, "pressed": 55.0}
    cards = {name: card(reading(conditions={"cpu_pressure_percent": share})) for name, share in shares.items()}
    assert changed_conditions(cards["quiet"], cards["usual"]) == []
    (line,) = changed_conditions(cards["quiet"], cards["pressed"])
    assert "waited for a core: 0 % → 55 %" in line


def test_the_last_two_cards_of_the_node_are_compared(report, capsys):
    assert main(["--report", str(report)]) == 0
    printed = capsys.readouterr().out
    assert "20261121-100000" in printed and "391 → 360 GB/s" in printed and "worse" in printed
    assert {path.name for path in report.parent.iterdir()} == {"report", "reports"}, "it only prints"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "ascii:surrogateescape"])
def test_a_terminal_without_arrows_gets_their_numbers(report, encoding):
    command = [sys.executable, "-m", "labkit.card.compare", "--report", str(report)]
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"") and rb"391 \u2192 360 GB/s" in done.stdout


def test_cards_of_another_node_and_empty_ones_are_passed_over(report):
    other = report.parent / "reports" / "20261122-090000"
    other.mkdir()
    made = card(reading(value=100.0), date="2026-11-22T09:00:00")
    write_card(replace(made, node=made.node | {"id": "another"}), other)
    interrupted = report.parent / "reports" / "20261122-093000"
    interrupted.mkdir()
    write_card(card(date="2026-11-22T09:30:00"), interrupted)
    (first, _), (second, _) = chosen_cards([], report)
    assert (first, second) == ("20261121-100000", "report")


def test_a_run_a_report_and_a_card_are_found_by_path_and_by_name(report, tmp_path):
    run = copies_run(report.parent / "20261122-120000-topology-copies", gpus=2)
    for name in ("20261120-100000", str(report), str(report / "card.json"), run.folder.name, str(run.folder)):
        assert find_card(name, report)[1].rows
    lines = comparison_text(find_card(run.folder.name, report)[1], find_card(str(run.folder), report)[1], ("a", "b"))
    assert "5 key figures in both: 5 not measured again (both show the same run)\n  topology: " in lines


def test_what_cannot_be_compared_is_one_sentence(report, tmp_path, capsys):
    hello_run(tmp_path / "20261122-120000-start-hello")
    for name in ("nowhere", "20261122-120000-start-hello"):
        assert main(["--report", str(report), name]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
    with pytest.raises(CardError, match="20261120-100000"):
        find_card("nowhere", report)
    assert main(["--report", str(tmp_path / "none" / "report")]) == 2
    assert "make card" in capsys.readouterr().err


def test_a_damaged_card_and_one_from_the_future_cost_no_other(report):
    damaged = report.parent / "reports" / "20261119-100000"
    damaged.mkdir()
    (damaged / "card.json").write_text("{")
    later = report.parent / "reports" / "29991231-100000"
    later.mkdir()
    write_card(card(reading(), date="2999-12-31T10:00:00"), later)
    known = history(report)
    assert len(known.cards) == 4
    assert "20261119-100000" in known.problems[0] and "2999-12-31" in known.problems[-1]


def test_a_trend_has_each_run_once_in_the_order_of_dates(report):
    again = report.parent / "reports" / "20261122-110000"
    again.mkdir()
    write_card(card(reading(value=360.0, run="report"), date="2026-11-22T11:00:00"), again)
    known = history(report)
    newest = next(row for row in known.cards[-1][1].rows if row.key == PAIR)
    assert [row.value for row in series(known, newest)] == [390.0, 391.0, 360.0]


def test_the_trends_page_has_a_chart_per_figure_and_needs_two_cards(report, tmp_path):
    shown = trends_html(report)
    assert from_elsewhere(shown) == [] and shown.count("<svg") == 1 and shown.count("<g><title>") == 3
    (tmp_path / "one").mkdir()
    write_card(card(reading()), tmp_path / "one")
    assert trends_html(tmp_path / "one") == ""


def test_a_higher_value_stands_higher_and_below_the_limit(report):
    known = history(report)
    newest = next(row for row in known.cards[-1][1].rows if row.key == PAIR)
    (ax,) = series_figure(series(known, newest)).axes
    limit, line, *dots, _floor = (artist.get_ydata() for artist in ax.lines)
    assert [value for dot in dots for value in dot] == list(line) == [390.0, 391.0, 360.0]
    low, high = ax.get_ylim()
    assert low == 0 and max(line) < limit[0] == newest.limit <= high
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2026-11-20 10:00", "2026-11-22 10:00"]


def test_a_trends_dot_tells_its_run_and_has_the_colours_of_the_page(report):
    shown = trends_html(report)
    drawn = re.findall(r"<title>(\S+) \S+: (\d+)", shown)
    assert drawn == [("2026-11-20", "390"), ("2026-11-21", "391"), ("2026-11-22", "360")]
    assert not re.findall(r"#[0-9a-f]{6}\b", shown), "each has one for a dark page, too"
    assert shown.count("fill: var(--ok)") == 2 and shown.count("fill: var(--bad)") == 1
