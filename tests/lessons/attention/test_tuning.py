"""Lab 08's tiles: every candidate gives the same, and the fastest that fits is chosen, once for a kind of problem."""

from __future__ import annotations

import pytest
import torch
import triton
from made_attention import Problem, assert_exact

from lessons.attention.worker import flash as kernels
from lessons.attention.worker import measuring, outputs_and_gradients
from lessons.attention.worker.measuring import CANDIDATES, SMALL, Tile

pytestmark = pytest.mark.slow
FEW = Tile(64, 64, 1, 4, described=False)  # of few programs, for the kernels that a test is not about


@pytest.mark.parametrize("described", [False, True], ids=["program", "host"])
@pytest.mark.parametrize(
    ("problem", "tile"),
    [(problem, tile) for problem, tiles in CANDIDATES.items() for tile in (*tiles, *SMALL)],
    ids=lambda value: str(value) if isinstance(value, Tile) else "-".join(map(str, value)),
)
def test_every_tile_gives_the_same(problem, tile, described, monkeypatch):
    kernel, precision, width = (*problem, 16)[:3]
    tile = tile._replace(described=described)
    monkeypatch.setattr(kernels, "tile_for", lambda name, *_: tile if name == kernel else FEW)
    past = max(tile.rows, tile.columns)  # then some tiles are full, some on the diagonal, some over the edge
    tensors = Problem((1,), past + 9, past + 21, width, precision=precision).tensors()
    assert_exact(outputs_and_gradients(kernels.flash, *tensors, True), tensors, True)


class Launches:
    """Stands in for a GPU, on which a tile takes as many milliseconds as `times` says; None: it does not fit."""

    def __init__(self, monkeypatch, times: dict[Tile, list[float] | None]):
        self.times, self.tried = times, []
        monkeypatch.setattr(triton.testing, "do_bench", self.clock)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        monkeypatch.setattr(measuring, "chosen", {})

    def clock(self, work, **_):
        work()
        return self.times[self.tried[-1]]

    def launch(self, tile):
        self.tried.append(tile)
        if self.times[tile] is None:
            raise triton.runtime.errors.OutOfResources(300_000, 232_448, "shared memory")

    def choose(self, queries: int, precision: torch.dtype = torch.bfloat16) -> Tile:
        class OnGpu:
            dtype, shape, is_cuda = precision, (16, queries, 64), True

        return measuring.tile_for("forward", OnGpu, 64, True, self.launch)


@pytest.mark.parametrize("queries", [1024, 4096])
def test_the_fastest_tile_that_fits_is_chosen_once(monkeypatch, queries):
    first, second, third = (
        tile._replace(described=queries >= measuring.LONG) for tile in CANDIDATES["forward", "bfloat16", 64]
    )
    gpu = Launches(monkeypatch, {first: None, second: [3.0, 3.0, 1.0], third: [2.0, 2.0, 9.0]})
    assert gpu.choose(queries) == third, "the median decides"
    assert gpu.tried == [first, second, third]
    assert gpu.choose(queries) == gpu.choose(queries - 1) == third and len(gpu.tried) == 3, "it is measured once"


@pytest.mark.parametrize("queries", [1024, 16384])
def test_the_host_describes_no_float32(monkeypatch, queries):
    tiles = [tile._replace(described=False) for tile in CANDIDATES["forward", "float32"]]
    gpu = Launches(monkeypatch, {tile: [1.0] for tile in tiles})
    assert gpu.choose(queries, torch.float32) == tiles[0]


def test_longer_sequences_are_measured_anew_up_to_the_longest(monkeypatch):
    tiles = [tile._replace(described=d) for tile in CANDIDATES["forward", "bfloat16", 64] for d in (False, True)]
    gpu = Launches(monkeypatch, {tile: [1.0] for tile in tiles})
    tried = []
    for queries in (1000, 1024, 1025, 16384, 65536):
        gpu.choose(queries)
        tried.append(len(gpu.tried))
    assert tried == [3, 3, 6, 9, 9]


def test_a_cpu_has_one_tile():
    q = torch.zeros(1, 5, 16)
    assert measuring.tile_for("forward", q, 16, False, None) == measuring.ON_CPU


def test_a_tile_tells_the_compiler_of_warps_and_registers():
    assert Tile(64, 128, 2, 4, 168).options() == {"num_warps": 4, "maxnreg": 168}
    assert Tile(64, 64, 3, 8).options() == {"num_warps": 8}


def test_where_none_of_the_candidates_fits_a_smaller_tile_is_taken(monkeypatch):
    """As in 64 KB of shared memory; that they give the same is tested with the candidates."""
    tiles = [tile._replace(described=False) for tile in CANDIDATES["forward", "bfloat16", 64]]
    small = [tile._replace(described=False) for tile in SMALL]
    gpu = Launches(monkeypatch, dict.fromkeys(tiles) | {small[0]: None} | {tile: [2.0] for tile in small[1:]})
    assert gpu.choose(1024) == small[1]
    assert gpu.tried == [*tiles, *small]


def test_where_no_tile_can_be_chosen_it_is_said_why(monkeypatch):
    tiles = [tile._replace(described=False) for tile in CANDIDATES["forward", "bfloat16", 64]]
    tiles += [tile._replace(described=False) for tile in SMALL]
    gpu = Launches(monkeypatch, dict.fromkeys(tiles))
    with pytest.raises(RuntimeError, match=r"no tile for .* fits this GPU"):
        gpu.choose(1024)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="call it once before capturing a CUDA graph"):
        gpu.choose(4096)
