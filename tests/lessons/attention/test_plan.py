"""Lab 08's plans check themselves and measure what their lesson needs."""

import pytest

from labkit.engine.errors import PlanError
from lessons import attention
from lessons.attention.exercises import SYMPTOMS
from lessons.attention.plan import IMPLEMENTATIONS, VARIANTS, Attention
from lessons.attention.worker.implementations import ATTENTIONS, OWN, TORCH

GPU = {"device": "cuda", "gpus": 1}
KINDS = Attention.__subclasses__()


@pytest.mark.parametrize(
    ("kind", "knobs", "says"),
    [
        (attention.Race, {"implementations": ("flash3",)}, "implementation='flash3' is not known; it is one of plain,"),
        (attention.Race, {"precisions": ("float16",)}, "precision='float16' is not known; it is one of float32, bf"),
        (attention.Sweep, {"head_dims": (64, 129)}, "head_dim=129: the kernels take 1 to 128"),
        (attention.Sweep, {"head_dims": (0,)}, "head_dim=0: the kernels take 1 to 128"),
        (attention.Errors, {"precisions": ("float8",)}, "precision='float8' is not known"),
        (attention.Trial, {"variants": ("right", "slow")}, "variant='slow' is not known; it is one of right, no_diag"),
        (attention.Trial, {"precisions": ("int8",)}, "precision='int8' is not known"),
    ],
)
def test_bad_input_says_what_is_allowed(kind, knobs, says):
    with pytest.raises(PlanError, match=says):
        kind(**GPU | knobs)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_small_plan_is_small(kind):
    points = kind.small(device="cpu").points()
    assert 1 <= len(points) <= 20
    longest = max(vars(point).get("sequence") or max(point.queries, point.keys) for point in points)
    assert longest <= (512 if kind is attention.Plain else 96), "kernels take seconds in the interpreter"


def test_every_name_is_known_to_the_worker():
    assert set(IMPLEMENTATIONS) == {*OWN, *TORCH, "compiled", "yours"}
    assert set(VARIANTS) == set(ATTENTIONS)
    assert (VARIANTS[0], VARIANTS[1:4]) == ("right", tuple(SYMPTOMS))


def test_the_race_holds_the_target_and_all_it_is_beside():
    race = attention.Race.full(**GPU)
    points = {(p.clock, p.implementation, p.sequence, p.head_dim) for p in race.points()}
    for name in ("plain", "flash", "sdpa_flash", "sdpa_cudnn"):
        for sequence in (1024, 8192, 16384, 65536):
            assert {("launched", name, sequence, 64), ("launched", name, sequence, 128)} <= points
    assert (race.heads, race.causal, race.precisions) == (16, True, ("bfloat16",))
    captured = {point for point in points if point[0] == "captured"}
    assert captured and all(name != "plain" and sequence <= 8192 for _, name, sequence, _ in captured)
    assert {p.clock for p in attention.Race.small(device="cpu").points()} == {"launched"}, "a CPU has no graphs"


def test_the_sweep_is_the_reports():
    points = attention.Sweep.full(**GPU).points()
    assert {p.sequence for p in points} == {2**power for power in range(7, 17)}
    assert {p.head_dim for p in points} == {16, 32, 64, 128}
    assert {(p.precision, p.implementation) for p in points} == {
        (precision, name) for precision in ("float32", "bfloat16") for name in ("plain", "flash")
    }
    assert len(points) == 10 * 4 * 4 and {(p.heads, p.causal) for p in points} == {(1, True)}


def test_plain_attention_is_compiled_where_compiling_pays():
    points = attention.Plain.full(**GPU).points()
    assert {(p.heads, p.causal, p.precision) for p in points} == {(8, False, "float32")}
    settings = {
        name: {(p.head_dim, p.sequence) for p in points if p.implementation == name} for name in ("compiled", "plain")
    }
    assert settings["compiled"] == settings["plain"] and len(settings["plain"]) == 20, (
        "the settings of the report's table"
    )
    assert {p.head_dim for p in points if p.implementation == "plain"} == {16, 32, 64, 128}
    cpu = attention.Plain.full(device="cpu").points()
    assert {p.implementation for p in cpu} == {"by_hand", "plain"}


def test_errors_are_taken_where_no_tile_divides():
    points = attention.Errors.full(**GPU).points()
    flash = [p for p in points if p.implementation == "flash"]
    assert {p.precision for p in flash} == {"float32", "bfloat16"} and {p.causal for p in flash} == {True, False}
    assert any(p.queries > p.keys for p in flash) and any(p.queries < p.keys for p in flash)
    assert any(p.queries % 16 and p.keys % 16 and p.head_dim & (p.head_dim - 1) for p in flash)
    assert {1, 4097} <= {p.queries for p in flash} and {16, 64, 80, 128} <= {p.head_dim for p in flash}
    tiled = [p for p in points if p.implementation == "tiled"]
    assert 0 < len(tiled) < len(flash) and max(p.queries * p.keys for p in tiled) <= 2**20
