"""Each broken account is named by its numbers, each usual mistake of an answer by its kind."""

import json
from math import ceil, floor, inf, nan

import pytest

from labkit.course import answers
from labkit.course.source import code_of
from labkit.course.verdict import RAISED, RIGHT, UNANSWERED, WRONG
from lessons import accounting
from lessons.accounting.bugs import ACCOUNTS, SYMPTOMS
from lessons.accounting.exercises import BATCHES, SIZES, check, verdict_of

pytestmark = pytest.mark.usefixtures("elsewhere")

FAULTS = {
    "right": set(),
    "mixed_units": {"devices"},
    "gradients_twice": {"gradients"},
    "bits_for_bytes": {"activations"},
    "upside_down": {"batch"},
}
DEVICES = code_of("lessons.accounting.solutions.devices_needed")
BATCH = code_of("lessons.accounting.solutions.compute_bound_batch")


@pytest.mark.parametrize("name", ACCOUNTS)
def test_every_account_is_named_by_its_own_fault(name):
    verdict = verdict_of(name, ACCOUNTS[name]())
    assert set(verdict.faults) == FAULTS[name]
    assert verdict.outcome == (WRONG if FAULTS[name] else RIGHT)


def test_faults_say_their_numbers():
    said = {name: " ".join(verdict_of(name, ACCOUNTS[name]()).faults.values()) for name in ACCOUNTS}
    assert "they would do if the label meant GiB" in said["mixed_units"]
    assert "8.00 bytes per parameter, not 4: 2 times" in said["gradients_twice"]
    assert "its bits taken for bytes" in said["bits_for_bytes"]
    assert "a least batch, not a largest one" in said["upside_down"]


def test_what_is_wrong_otherwise_is_told_without_a_guess():
    account = ACCOUNTS["right"]()
    assert "meant GiB" not in verdict_of("?", account | {"devices": 20}).faults["devices"]
    assert "bits" not in verdict_of("?", account | {"activations": 3 * account["activations"]}).faults["activations"]
    assert "not 8: 0.5 times" in verdict_of("?", account | {"optimizer": account["optimizer"] / 2}).faults["optimizer"]


def test_the_suspects_and_their_numbers():
    names = accounting.suspects()
    assert sorted(names) == sorted(SYMPTOMS) and list(names) != list(SYMPTOMS) and set(SYMPTOMS) < set(ACCOUNTS)
    table = accounting.accounts(names)
    assert table.index.tolist() == ["A", "B", "C", "D"]
    assert table["devices"].tolist() != sorted(table["devices"], reverse=True)
    said = accounting.diagnose(names, {}).data
    assert said.count("- **") == 4 and "nothing is wrong" not in said


def judged(exercise, function, settings):
    return check.by_name[exercise].judge(json.loads(json.dumps([function(*setting) for setting in settings])), settings)


def devices(function) -> set[str]:
    return set(judged("devices_needed", function, SIZES).faults)


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (lambda gib, gb: -(-int(gib * 2**30) // (gb * 10**9)), set()),
        (lambda gib, gb: ceil(gib * 2**30 / (gb * 1e9)), set()),
        (lambda gib, gb: ceil(gib / gb), {"mixed"}),
        (lambda gib, gb: floor(gib / gb), {"mixed"}),
        (lambda gib, gb: gib / gb, {"mixed"}),
        (lambda gib, gb: gib * 2**30 / (gb * 1e9), {"unrounded"}),
        (lambda gib, gb: floor(gib * 2**30 / (gb * 1e9)), {"rounded_down"}),
        (lambda gib, gb: max(1, floor(gib * 2**30 / (gb * 1e9))), {"rounded_down"}),
        (lambda gib, gb: round(gib * 2**30 / (gb * 1e9)), {"nearest"}),
        (lambda gib, gb: floor(gib * 2**30 / (gb * 1e9)) + 1, {"one_more"}),
        (lambda gib, gb: ceil(gib * 1e9 / (gb * 2**30)), {"wrong_way"}),
        (lambda gib, gb: gb * 1e9 / (gib * 2**30), {"upside_down"}),
        (lambda gib, gb: ceil(int(gib) * 2**30 / (gb * 1e9)), {"wrong"}),
        (lambda gib, gb: ceil(gib * 1.07 / gb), {"wrong"}),
        (lambda gib, gb: None, {"form"}),
        (lambda gib, gb: "44", {"form"}),
        (lambda gib, gb: True, {"form"}),
        (lambda gib, gb: [44], {"form"}),
        (lambda gib, gb: nan, {"wrong"}),
        (lambda gib, gb: inf, {"wrong"}),
        (lambda gib, gb: 10**400, {"form"}),
        (lambda gib, gb: 1000, {"wrong"}),
    ],
)
def test_devices_by_their_mistake(function, kinds):
    """One mistake is told as one, though single numbers could come from others, too."""
    assert devices(function) == kinds


def batch(**changes):
    """Give an answer with terms changed: factors on a, b and c, what is returned, or what axes and W are taken for."""

    def function(f, x, y, m_x, m_y, rate, link):
        m_x, m_y = changes.get("axes", lambda m_x, m_y: (m_x, m_y))(m_x, m_y)
        link *= changes.get("link", 1)
        a, b, c = f / (x * y * rate), f / (y * link * m_x), 1 / (x * link * m_y)
        c *= changes.get("sign", 1)
        guard = changes.get("guard", lambda *_: a > c)
        if guard and not guard(f, x, y, m_x, m_y, rate, link):
            return changes.get("none")
        return b / (a - c) / (x * y if changes.get("each") else 1) * changes.get("times", 1)

    return function


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (batch(), set()),
        (batch(axes=lambda m_x, m_y: (1, m_y)), {"no_m_x"}),
        (batch(axes=lambda m_x, m_y: (m_x, 1)), {"no_m_y"}),
        (batch(axes=lambda m_x, m_y: (m_y, m_x)), {"swapped"}),
        (batch(link=0.5), {"one_way"}),
        (batch(sign=0), {"together"}),
        (batch(sign=-1), {"added"}),
        (batch(each=True), {"a_device"}),
        (batch(guard=False), {"never"}),
        (batch(times=0.5), {"wrong"}),
        (batch(times=1.5), {"wrong"}),
        (batch(none=nan), {"wrong"}),
        (batch(none=inf), {"never"}),
        (batch(none=0), {"never"}),
        (batch(none="None"), {"form"}),
        (batch(guard=lambda f, x, y, m_x, m_y, rate, link: f * link > y * rate), {"none"}),
        (batch(guard=lambda f, x, y, m_x, m_y, rate, link: m_x * f * link > y * rate), {"none", "never"}),
        (batch(guard=lambda f, x, y, m_x, m_y, rate, link: f > 16384), {"none"}),
        (lambda f, x, y, *rest: batch()(f, y, x, *rest), {"transposed"}),
        (lambda *setting: None, {"none"}),
        (lambda *setting: nan, {"wrong"}),
        (lambda *setting: 10**400, {"form"}),
        (lambda *setting: [1], {"form"}),
        (lambda *setting: "many", {"form"}),
    ],
)
def test_batches_by_their_mistake(function, kinds):
    verdict = judged("compute_bound_batch", function, BATCHES)
    assert kinds <= set(verdict.faults) if kinds else not verdict.faults, verdict
    assert verdict.outcome == (WRONG if kinds else RIGHT)


def test_a_mistake_says_what_was_left_out_and_that_it_is_per_device():
    given = [batch(axes=lambda m_x, m_y: (1, m_y), each=True)(*setting) for setting in BATCHES]
    said = check.by_name["compute_bound_batch"].judge(given, BATCHES).faults["no_m_x"]
    assert "`m_x` is left out" in said and "per device" in said


@pytest.mark.parametrize("exercise", check.names)
def test_an_exercise_is_called_and_judged(exercise):
    assert check(exercise).outcome == UNANSWERED
    text = DEVICES if exercise == "devices_needed" else BATCH
    answers.save(f"accounting.{exercise}", text)
    assert check(exercise).outcome == RIGHT
    answers.save(f"accounting.{exercise}", text.replace("return ", "return 1 / 0 + "))
    assert check(exercise).outcome == RAISED


@pytest.mark.parametrize("nothing", ["float('nan')", "0 * 1e999", "'None'"])
def test_only_none_is_none(nothing):
    answers.save("accounting.compute_bound_batch", BATCH.replace("return None", f"return {nothing}"))
    assert check("compute_bound_batch").outcome == WRONG


def test_an_unknown_exercise_is_refused():
    with pytest.raises(ValueError, match="devices_needed, compute_bound_batch"):
        check("bytes")
