"""card.toml: figures that are left out, what may be missed, goals of a site, and a wrong one in one sentence."""

import pytest
from made_card import CALL, PAIR, card, reading, row

from labkit.card.__main__ import main
from labkit.card.criteria import Criteria, CriteriaError

NAME = PAIR[1]


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Return what writes a card.toml that LABKIT_CARD_FILE names."""

    def write(text):
        monkeypatch.setenv("LABKIT_CARD_FILE", str(tmp_path / "card.toml"))
        (tmp_path / "card.toml").write_text(text)
        return tmp_path / "card.toml"

    return write


def test_without_a_file_each_figures_fence_decides(monkeypatch):
    monkeypatch.delenv("LABKIT_CARD_FILE", raising=False)
    assert Criteria.read() == Criteria()


def test_the_keys_are_read(written):
    written(f'below_percent = 3\nleft_out = ["{CALL[1]}"]\n[goals]\n"{NAME}" = 380')
    assert Criteria.read() == Criteria(below_percent=3, left_out=(CALL[1],), goals={NAME: 380})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("below_precent = 3", "'below_precent' is not known; did you mean 'below_percent'?"),
        ('below_percent = "3"', "a Criteria whose 'below_percent' is '3'"),
        ('left_out = ["GPU → GPU, slowest pear"]', f"did you mean '{NAME}'?"),
        ('[goals]\n"no such figure" = 3', "the key 'no such figure' is not known; there are: "),
        (f'[goals]\n"{NAME}" = "fast"', "'goals' is 'fast'"),
        ("goals = ", "Invalid value"),
    ],
)
def test_a_wrong_file_is_one_sentence_and_nothing_is_measured(written, capsys, text, says):
    file = written(text)
    with pytest.raises(CriteriaError) as error:
        Criteria.read()
    assert says in str(error.value) and str(file) in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(SystemExit) as stopped:
        main(["topology"])
    assert stopped.value.code == 2 and says in capsys.readouterr().err


def test_a_file_that_is_named_and_missing_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_CARD_FILE", str(tmp_path / "card.toml"))
    with pytest.raises(CriteriaError, match="does not exist"):
        Criteria.read()


def test_a_figure_that_is_left_out_is_not_on_the_card():
    assert PAIR not in {each.key for each in card(reading(), criteria=Criteria(left_out=(NAME,))).rows}


@pytest.mark.parametrize(("value", "kind"), [(360.0, "sound"), (350.0, "below"), (900.0, "impossible")])
def test_what_a_site_allows_is_sound_and_says_so(value, kind):
    found = row(card(reading(value=value), criteria=Criteria(below_percent=8)))
    assert found.kind == kind
    assert kind != "sound" or found.verdict == "sound: 7.7 % worse, of 8 % that card.toml allows"


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (390.0, "below the goal of 400 GB/s by 2.5 %"),
        (401.0, "sound: 2.8 % better, the reference is stale"),
        (900.0, "impossible: check the clock"),
        (-1.0, "impossible: check the clock"),
    ],
)
def test_a_goal_stands_before_the_reference(value, verdict):
    assert row(card(reading(value=value), criteria=Criteria(goals={NAME: 400}))).verdict == verdict


def test_a_goal_that_is_reached_needs_no_reference():
    for recorded in ((), (reading(value=500.0, limit=None),)):
        found = row(card(reading(limit=None), recorded=recorded, criteria=Criteria(goals={NAME: 380})))
        assert found.verdict == "sound: it reaches the goal of 380 GB/s"
    slow = card(reading(CALL, 90.0, 1.0, limit=None), recorded=(), criteria=Criteria(goals={CALL[1]: 60}))
    assert row(slow, CALL).verdict == "below the goal of 60.0 µs by 50 %"
