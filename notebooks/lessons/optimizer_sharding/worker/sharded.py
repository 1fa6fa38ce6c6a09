"""A sharded optimizer, whole: any of torch's, each rank keeping states for its share of the elements only."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from labkit.theory.sizes import MIB
from lessons.optimizer_sharding.worker.states import full_states, load_states

# They look at a parameter's shape, or at all parameters together: a part of one is not enough for them.
NEED_WHOLE = ("Adafactor", "LBFGS", "Muon", "SparseAdam")


class Piece(NamedTuple):
    """The elements begin … end of a parameter that this rank updates; `own` is a view of them in the bucket."""

    number: int  # of the parameter in its bucket
    parameter: torch.Tensor
    begin: int
    end: int
    own: torch.Tensor


class Bucket:
    """Parameters of a group moved into one flat buffer, of which every rank owns a part: from one cut to the next."""

    optimizer: torch.optim.Optimizer  # of this rank's part

    def __init__(self, group: int, parameters: list[torch.Tensor], cuts: list[int], rank: int):
        self.group, self.parameters, self.cuts = group, parameters, cuts
        self.begin, self.end = cuts[rank], cuts[rank + 1]
        self.flat = parameters[0].new_zeros(cuts[-1])
        self.pieces = []
        for number, (at, parameter) in enumerate(zip(self.places(), parameters, strict=True)):
            place = self.flat[at : at + parameter.numel()].view(parameter.shape)
            parameter.data = place.copy_(parameter.detach())
            begin, end = max(at, self.begin), min(at + parameter.numel(), self.end)
            if begin < end:
                self.pieces.append(Piece(number, parameter, begin - at, end - at, self.flat[begin:end]))

    def places(self) -> Iterator[int]:
        """Yield where in the buffer each parameter begins."""
        at = 0
        for parameter in self.parameters:
            yield at
            at += parameter.numel()


class ShardedOptimizer(torch.optim.Optimizer):
    """Wraps an optimizer class of torch: each rank keeps states for 1/N of all elements, updates them and sends them.

        optimizer = ShardedOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3, weight_decay=0.1)

    Parameters are cut at equal numbers of elements, in the middle of a tensor where need be. So the optimizer must
    treat every element by itself, as SGD, Adam, AdamW, RMSprop, Adagrad and their like do; those that look at a whole
    tensor go wrong, and torch's own of that kind raise ValueError. Gradients must be averaged already, and parameters
    equal on all ranks of `group`.

    A bucket of `bucket_mib` is updated and then sent while the next one is updated; parameters become views of the
    buckets. Frozen parameters are in none until they are unfrozen.
    """

    def __init__(
        self,
        params,
        optimizer_class: type[torch.optim.Optimizer],
        group: dist.ProcessGroup | None = None,
        *,
        bucket_mib: float = 512,
        **options: Any,
    ):
        if optimizer_class.__name__ in NEED_WHOLE:
            raise ValueError(f"{optimizer_class.__name__} needs whole parameters, and each rank has parts of them")
        self.optimizer_class, self.options, self.process_group = optimizer_class, options, group
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.bucket_bytes, self.buckets, self.placed = MIB * bucket_mib, [], set()
        super().__init__(params, optimizer_class([torch.zeros(1)], **options).defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        self.place(len(self.param_groups) - 1)

    def place(self, group: int, to_keep: Container[torch.Tensor] = ()) -> None:
        """Put the group's parameters that have no place yet into buckets, each with its own optimizer.

        They are those that train, and those of `to_keep`, which have states though they may be frozen now.
        """
        unplaced = [parameter for parameter in self.param_groups[group]["params"] if parameter not in self.placed]
        new = [parameter for parameter in unplaced if parameter.requires_grad or parameter in to_keep]
        self.placed.update(new)
        for parameters in in_buckets(new, self.bucket_bytes):
            bucket = Bucket(group, parameters, self.cuts(parameters), self.rank)
            part = {"params": [piece.own for piece in bucket.pieces]}
            bucket.optimizer = self.optimizer_class([part | self.rates(bucket)], **self.options)
            self.buckets.append(bucket)

    def cuts(self, parameters: list[torch.Tensor]) -> list[int]:
        """Return where each rank's part begins, and the end: parts are equal, so the last may hold some padding."""
        share = -(-sum(parameter.numel() for parameter in parameters) // self.ranks)
        return [share * rank for rank in range(self.ranks + 1)]

    def rates(self, bucket: Bucket) -> dict[str, Any]:
        """Return what the bucket's parameter group says now: learning rate, weight decay and the like."""
        group = self.param_groups[bucket.group]
        return {name: value for name, value in group.items() if name not in ("params", "param_names")}

    @torch.no_grad()
    def step(self, closure: Callable | None = None):
        """Update this rank's elements and gather the others'; call the closure once, and return its loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in range(len(self.param_groups)):
            self.place(group)  # parameters unfrozen since the last step
        self.update_all()
        return loss

    def update_all(self) -> None:
        """Update this rank's part of each bucket, and gather one bucket while the next is updated."""
        sent = []
        for bucket in self.buckets:
            self.update(bucket)
            sent.append(self.send(bucket, bucket.flat))
        for work in sent:
            work.wait()

    def update(self, bucket: Bucket) -> None:
        """Have the bucket's optimizer update this rank's part: a gradient is cut as its parameter is."""
        for piece in bucket.pieces:
            gradient = piece.parameter.grad
            piece.own.grad = None if gradient is None else gradient.flatten()[piece.begin : piece.end]
        self.run(bucket)

    def run(self, bucket: Bucket) -> None:
        """Run one step of the bucket's optimizer with the gradients that this rank's pieces have."""
        bucket.optimizer.param_groups[0].update(self.rates(bucket))
        bucket.optimizer.step()
        bucket.optimizer.zero_grad()  # or the cut gradients would keep the whole ones alive

    def send(self, bucket: Bucket, flat: torch.Tensor) -> Any:
        """Start to gather a bucket's buffer in place: every rank gives the part that it owns."""
        own_part = flat[bucket.begin : bucket.end]
        return dist.all_gather_into_tensor(flat, own_part, group=self.process_group, async_op=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all ranks as `optimizer_class` itself would, on the CPU; every rank must ask."""
        for bucket in self.buckets:
            for parameter, state in zip(bucket.parameters, full_states(self, bucket), strict=True):
                if state:
                    self.state[parameter] = state
        try:
            return super().state_dict()
        finally:
            self.state.clear()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take whole states, as `state_dict` gives or `optimizer_class` itself, and keep this rank's part of them."""
        super().load_state_dict(state_dict | {"state": {}})
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        pairs = zip(parameters, map(state_dict["state"].get, numbers), strict=True)
        states = {parameter: state for parameter, state in pairs if state is not None}
        for group in range(len(self.param_groups)):
            self.place(group, states)
        for bucket in self.buckets:
            load_states(bucket, states)


def in_buckets(parameters: list[torch.Tensor], most_bytes: float) -> Iterator[list[torch.Tensor]]:
    """Yield the parameters in order, in lists of at most so many bytes (or one parameter), alike in kind and place."""
    bucket: list[torch.Tensor] = []
    for parameter in parameters:
        fits_in_kind = not bucket or (bucket[0].dtype, bucket[0].device) == (parameter.dtype, parameter.device)
        if bucket and (not fits_in_kind or sum(kept.nbytes for kept in bucket) + parameter.nbytes > most_bytes):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket
