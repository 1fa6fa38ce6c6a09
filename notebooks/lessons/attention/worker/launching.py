"""How kernels are started: compiled once for each kind of tensor, then started again in a few microseconds.

At short sequences the host is the bound: what it takes to start a kernel is longer than the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

# Whether Triton's launcher takes its arguments as `_direct` gives them. With other versions `compiled[grid]` starts
# kernels, through public names, and takes up to ten times as long.
DIRECT = triton.__version__.startswith("3.6.")
MOST_KNOWN = 1024  # launches that are kept


class DescribedTensor(NamedTuple):
    """A tensor (…, N, d) that the host describes to the copy engine as (heads, N, d), moved in blocks of this shape.

    Loads beyond its end give zeros, stores and additions there are left out. `swizzle_bytes` is for Gluon: how blocks
    lie in shared memory.
    """

    tensor: torch.Tensor
    block: tuple[int, ...]
    swizzle_bytes: int | None = None

    def descriptor(self) -> Any:
        x = self.tensor.view(-1, *self.tensor.shape[-len(self.block) + 1 :]) if self.block[1:] else self.tensor.view(-1)
        if self.swizzle_bytes is None:
            return TensorDescriptor(x, list(x.shape), list(x.stride()), list(self.block))
        from triton.experimental.gluon.language import NVMMASharedLayout
        from triton.experimental.gluon.nvidia import hopper

        form = {"element_bitwidth": 8 * x.element_size(), "rank": len(self.block)}
        layout = NVMMASharedLayout(swizzle_byte_width=self.swizzle_bytes, **form)
        return hopper.TensorDescriptor(x, list(x.shape), list(x.stride()), list(self.block), layout)


class Launch(NamedTuple):
    """What starts a kernel: its grid, its arguments (tensors, DescribedTensor, numbers), its constants, and options."""

    kernel: Any
    grid: tuple[int, int, int]
    arguments: tuple
    constants: tuple = ()
    options: dict[str, int] = {}  # noqa: RUF012  (never changed)

    def key(self, q: torch.Tensor) -> tuple:
        """Return all that the compiled kernel depends on.

        No integer is specialised on, and all tensors start at multiples of 16 bytes.
        """
        return id(self.kernel), self.constants, *self.options.items(), q.dtype, q.device

    def plain(self) -> list[Any]:
        """Return the arguments as Triton takes them."""
        return [value.descriptor() if isinstance(value, DescribedTensor) else value for value in self.arguments]


_compiled: dict[tuple, Any] = {}
_known: dict[tuple, tuple[Any, ...]] = {}  # what starts a launch once more


def launch(setting: Hashable, tensors: tuple[torch.Tensor, ...], make: Callable[[], Launch]) -> None:
    """Start the kernel that `make` returns; `setting` and the addresses of `tensors` say all that it depends on.

    torch's allocator gives the same addresses in every step: what is made of them is made once, and kept. The first of
    `tensors` tells precision and GPU.
    """
    key = (setting, *[x.data_ptr() for x in tensors])
    if (kept := _known.get(key)) is not None:
        start, grid, arguments = kept
        start(*grid, torch._C._cuda_getCurrentRawStream(tensors[0].get_device()), *arguments)
        return
    triton.set_allocator(_scratch)  # holds in one thread, and autograd has its own
    new = make()
    compiled = _compiled.get(new.key(tensors[0]))
    if compiled is None:
        compiled = new.kernel[new.grid](*new.plain(), *new.constants, **new.options)
        if compiled is not None:  # the interpreter has none
            _compiled[new.key(tensors[0])] = compiled
        return
    compiled[new.grid](*new.plain(), *new.constants)
    if DIRECT and not compiled.run.global_scratch_size:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[key] = _direct(compiled, new)


def _direct(compiled: Any, new: Launch) -> tuple[Any, ...]:
    """Return what starts the launch as `compiled[grid]` does in the end: function, grid, what follows the stream.

    That takes 5 µs instead of up to 85. All names of `compiled.run` are private to Triton.
    """
    from triton.backends.nvidia.driver import make_tensordesc_arg

    run, flat = compiled.run, []
    of_described = iter(getattr(compiled.metadata, "tensordesc_meta", None) or ())
    for value in new.arguments:
        if isinstance(value, DescribedTensor):
            flat.extend(make_tensordesc_arg(value.descriptor(), next(of_described)))
        else:
            flat.append(value.data_ptr() if isinstance(value, torch.Tensor) else value)
    cells = [cell.cell_contents for cell in getattr(run.launch, "__closure__", None) or ()]
    start = next(filter(callable, cells), run.launch)  # behind what takes descriptors apart
    before = (compiled.function, run.launch_cooperative_grid, run.launch_pdl, None, None)
    return start, new.grid, (*before, compiled.packed_metadata, None, None, None, *flat, *new.constants)


def _scratch(size: int, alignment: int, stream: int | None) -> Any:
    """Return the memory in which programs put the descriptors that they make."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def block_count(n: int, size: int) -> int:
    """Return how many blocks of `size` cover n."""
    return -(-n // size)
