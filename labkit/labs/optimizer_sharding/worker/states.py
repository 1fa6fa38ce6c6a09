"""States of a sharded optimizer made whole for a checkpoint, and cut again from one."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


def whole_states(optimizer, bucket) -> list[dict[str, Any]]:
    """Give the state of each of a bucket's parameters, its tensors gathered from all ranks and moved to the CPU.

    First the ranks tell each other what they hold (a dtype stands for a tensor that is cut), then each such tensor
    goes the way of the parameters.
    """
    mine = {piece.number: {name: told(value, piece) for name, value in state.items()} for piece, state in held(bucket)}
    everyone: list[dict] = [{}] * optimizer.ranks
    dist.all_gather_object(everyone, mine, group=optimizer.process_group)
    known = {number: dict(state) for one in everyone for number, state in one.items()}
    cuts = {name: kind for state in known.values() for name, kind in state.items() if isinstance(kind, torch.dtype)}
    for name, dtype in sorted(cuts.items()):
        flat = torch.zeros_like(bucket.flat, dtype=dtype)
        for piece, state in held(bucket):
            if is_cut(state.get(name), piece):
                at = piece.own.storage_offset()
                flat[at : at + piece.own.numel()] = state[name]
        optimizer.send(bucket, flat).wait()
        for number, (at, parameter) in enumerate(zip(bucket.places(), bucket.parameters, strict=True)):
            if isinstance(known.get(number, {}).get(name), torch.dtype):
                known[number][name] = flat[at : at + parameter.numel()].view(parameter.shape).cpu()
    return [known.get(number, {}) for number in range(len(bucket.parameters))]


def take(bucket, states: dict[torch.Tensor, dict[str, Any]]) -> None:
    """Load this rank's part of whole states, by parameter, into the bucket's optimizer."""
    cut = {number: {name: part(name, value, piece) for name, value in states[piece.parameter].items()}
           for number, piece in enumerate(bucket.pieces) if piece.parameter in states}  # fmt: skip
    bucket.optimizer.load_state_dict(bucket.optimizer.state_dict() | {"state": cut})


def held(bucket) -> list[tuple[Any, dict[str, Any]]]:
    """Give the bucket's pieces that have a state here, with it."""
    states = bucket.optimizer.state
    return [(piece, states[piece.own]) for piece in bucket.pieces if states.get(piece.own)]


def is_cut(value: Any, piece) -> bool:
    """Say whether a state has a number for each of the piece's elements, as a moment has, and a count of steps not."""
    return torch.is_tensor(value) and value.shape == piece.own.shape


def told(value: Any, piece) -> Any:
    """Give what the other ranks need to know of a state: a dtype where it is cut, else the value itself."""
    if is_cut(value, piece):
        return value.dtype
    return value.cpu() if torch.is_tensor(value) else value


def part(name: str, value: Any, piece) -> Any:
    """Give the piece's part of a whole state; a count of steps, and what has another shape, stays as it is."""
    if torch.is_tensor(value) and value.shape == piece.parameter.shape and name != "step":
        return value.flatten()[piece.begin : piece.end].clone()
    return value.clone() if torch.is_tensor(value) else value  # the caller's checkpoint stays as it is
