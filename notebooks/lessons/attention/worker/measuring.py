"""How attentions are timed and weighed, and with which tiles each kernel runs.

Candidates for a tile are measured once per kind of problem, and the fastest is kept.
"""

from __future__ import annotations

import math
import statistics
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.engine.worker import Worker
from labkit.theory.sizes import MIB
from labkit.worker.allocations import Meter
from lessons.attention.worker.launching import DIRECT

_UNSYNCHRONISED = 20
_GRAPH_MS = 8  # one replay of the graph; there are ten


def launch_times_ms(worker: Worker, work: Callable[[], object], repeat_ms: int) -> list[float]:
    """Return the milliseconds of each repetition, between two events on the GPU; the L2 cache is cleared before each.

    The events stand around what is launched: where the host takes longer to launch than the GPU to work, they tell
    the host's time (triton.testing.do_bench).
    """
    if worker.device.type == "cuda":
        times: Any = triton.testing.do_bench(work, warmup=repeat_ms // 2, rep=repeat_ms, return_mode="all")
        return times
    return [1e3 * run.seconds for run in worker.time(work, warm_ups=1, repeats=3) if not run.warm_up]


def graph_times_ms(work: Callable[[], object]) -> list[float]:
    """Return the milliseconds of `work` in each replay of a CUDA graph of many: the GPU's time alone.

    Nothing is launched by the host meanwhile, and the L2 cache keeps what it has (triton.testing.do_bench_cudagraph).
    """
    times: Any = triton.testing.do_bench_cudagraph(work, rep=_GRAPH_MS, return_mode="all")
    return times


def unsynchronised_ms(worker: Worker, work: Callable[[], object]) -> float:
    """Return the mean milliseconds that a clock shows which waits for nobody: what the host takes to launch `work`."""
    worker.synchronize()
    start = time.perf_counter()
    for _ in range(_UNSYNCHRONISED):
        work()
    passed = time.perf_counter() - start
    worker.synchronize()
    return 1e3 * passed / _UNSYNCHRONISED


class KeptTensor:
    """A tensor for as long as autograd keeps it for backward."""

    def __init__(self, x: torch.Tensor):
        self.x = x


def kept_bytes(work: Callable[[], object]) -> int:
    """Return the bytes of the distinct storages that `work` keeps for backward.

    What it saved and let go again, as the maximum of a softmax does that is detached, does not count.
    """
    alive: weakref.WeakSet[KeptTensor] = weakref.WeakSet()

    def pack(x: torch.Tensor) -> KeptTensor:
        alive.add(saved := KeptTensor(x.detach()))  # with its graph it would keep itself
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.x):
        result = work()
    tensors = [saved.x for saved in alive]
    del result
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}
    return sum(storages.values())


def peak_sizes_mib(
    worker: Worker, forward: Callable[[], torch.Tensor], do: torch.Tensor, inputs: tuple[torch.Tensor, ...]
) -> dict[str, float]:
    """Return MiB beyond what was there before: at most in forward, held between, at most in backward."""
    with Meter(worker) as meter:
        seen = [x.detach() for x in (*inputs, do)]  # a CPU's count knows them from here on
        before = meter.held_bytes()
        meter.reset()
        o = forward()
        sizes_mib = {
            "forward_mib": (meter.peak_bytes() - before) / MIB,
            "held_mib": (meter.held_bytes() - before) / MIB,
        }
        meter.reset()
        torch.autograd.grad(o, inputs, do)
        sizes_mib["backward_mib"] = (meter.peak_bytes() - before) / MIB
        del seen
    return sizes_mib


class OperatorWatch(TorchDispatchMode):
    """Notes the largest tensor that torch's operators make, in bytes."""

    def __init__(self):
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **kwargs or {})
        results = result if isinstance(result, tuple | list) else (result,)
        self.largest = max([self.largest, *(x.nbytes for x in results if isinstance(x, torch.Tensor))])
        return result


_REPEAT_MS = 20  # how long a candidate is timed for
# Queries from which on it pays that the host describes the tensors, in bfloat16; where descriptions are kept, always.
LONG = 4096
_LONGEST = 16384  # above it, the same tile wins


class Tile(NamedTuple):
    """Rows and columns of a tile of scores, loads in flight, warps a program, and registers a thread (0: any).

    `described`: the host describes the tensors to the copy engine, which may cost it 3 µs each; else each program does.
    """

    rows: int
    columns: int
    stages: int
    warps: int
    registers: int = 0
    described: bool = True

    def options(self) -> dict[str, int]:
        """Return what the compiler is told besides the kernel's own arguments."""
        return {"num_warps": self.warps} | ({"maxnreg": self.registers} if self.registers else {})


# Of some hundred that were measured on an H200, those that won somewhere. Three programs of 4 warps fit on a
# multiprocessor with 168 registers a thread; a 64×64 tile of float32 scores takes 32 of them. Warp specialisation
# (tl.range's warp_specialize) made no kernel of 8 warps 1 % faster, and Triton 3.6 cannot compile it for 4.
CANDIDATES = {
    ("forward", "bfloat16", 64): (Tile(64, 128, 2, 4, 168), Tile(64, 64, 3, 4), Tile(128, 64, 3, 8)),
    ("keys_values", "bfloat16", 64): (Tile(64, 64, 3, 4, 168), Tile(64, 64, 2, 4)),
    ("queries", "bfloat16", 64): (Tile(64, 128, 3, 4), Tile(64, 64, 3, 4), Tile(128, 64, 3, 8)),
    ("forward", "bfloat16", 128): (Tile(128, 128, 3, 8), Tile(64, 64, 3, 4)),
    ("keys_values", "bfloat16", 128): (Tile(64, 64, 2, 4), Tile(64, 128, 3, 8)),
    ("queries", "bfloat16", 128): (Tile(128, 64, 4, 8, 168), Tile(64, 64, 3, 4)),
    ("forward", "bfloat16"): (Tile(64, 128, 3, 4),),
    ("keys_values", "bfloat16"): (Tile(64, 64, 2, 4),),
    ("queries", "bfloat16"): (Tile(64, 64, 3, 4),),
    ("forward", "float32"): (Tile(64, 64, 2, 4),),
    ("keys_values", "float32"): (Tile(32, 32, 2, 4),),
    ("queries", "float32"): (Tile(32, 32, 2, 4),),
    ("keys_values", "float32", 128): (Tile(64, 64, 2, 4),),
    ("queries", "float32", 64): (Tile(128, 32, 2, 8),),
    ("forward", "float32", 128): (Tile(128, 32, 2, 8),),
    ("queries", "float32", 128): (Tile(128, 32, 2, 8),),
}
# Where a program has 64 to 100 KB of shared memory, and none of those above fits.
SMALL = (Tile(64, 32, 2, 4), Tile(32, 32, 1, 4), Tile(16, 16, 1, 4))
ON_CPU = Tile(32, 16, 1, 4, described=False)  # for Triton's interpreter, where only the result counts

Problem = tuple[str, str, int, bool, int]  # kernel, precision, padded head dimension, causal, queries up to
chosen: dict[Problem, Tile] = {}


def tile_for(kernel: str, q: torch.Tensor, padded_width: int, causal: bool, launch: Callable[[Tile], object]) -> Tile:
    """Return the tile that `launch` ran fastest with, measuring the candidates when this kind of problem is new."""
    if not q.is_cuda:
        return ON_CPU
    precision = "float32" if q.dtype == torch.float32 else "bfloat16"
    problem = (kernel, precision, padded_width, causal, min(1 << (q.shape[-2] - 1).bit_length(), _LONGEST))
    if problem not in chosen:
        tiles = CANDIDATES.get((kernel, precision, padded_width)) or CANDIDATES[kernel, precision]
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(f"no tile is chosen for {problem} yet: call it once before capturing a CUDA graph")
        # Bound by its products, float32 has less to gain, and compiling a second kernel for it takes 20 s at d = 128.
        described = DIRECT or (precision == "bfloat16" and problem[-1] >= LONG)
        for some in (tiles, SMALL):
            times = {tile: _milliseconds(launch, tile) for tile in (t._replace(described=described) for t in some)}
            if fitting := [tile for tile in times if not math.isnan(times[tile])]:
                chosen[problem] = min(fitting, key=times.__getitem__)
                break
        else:
            raise RuntimeError(f"no tile for {problem} fits this GPU: it has too few registers or too little memory")
    return chosen[problem]


def _milliseconds(launch: Callable[[Tile], object], tile: Tile) -> float:
    try:
        times: Any = triton.testing.do_bench(lambda: launch(tile), warmup=5, rep=_REPEAT_MS, return_mode="all")
    except triton.runtime.errors.OutOfResources:
        return math.nan
    return statistics.median(times)
