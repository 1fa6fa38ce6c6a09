"""States of a sharded optimizer made whole for a checkpoint, and cut again from one."""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist


def full_states(optimizer, bucket) -> list[dict[str, Any]]:
    """Return the state of each of a bucket's parameters, its tensors gathered from all ranks and moved to the CPU.

    First the ranks tell each other what they hold (a dtype stands for a tensor that is cut), then each such tensor
    goes the way of the parameters.
    """
    local_states = {
        piece.number: {name: _dtype_or_value(value, piece) for name, value in state.items()}
        for piece, state in pieces_with_state(bucket)
    }
    all_states = {}
    for text in _gather_texts(
        json.dumps([*local_states.items()], default=as_json), optimizer.process_group, optimizer.ranks
    ):
        all_states.update(json.loads(text, object_hook=from_json))
    cut_dtypes = {
        name: kind for state in all_states.values() for name, kind in state.items() if isinstance(kind, torch.dtype)
    }
    for name, dtype in sorted(cut_dtypes.items()):
        flat = torch.zeros_like(bucket.flat, dtype=dtype)
        for piece, state in pieces_with_state(bucket):
            if _is_cut(state.get(name), piece):
                at = piece.own.storage_offset()
                flat[at : at + piece.own.numel()] = state[name]
        optimizer.send(bucket, flat).wait()
        for number, (at, parameter) in enumerate(zip(bucket.places(), bucket.parameters, strict=True)):
            if isinstance(all_states.get(number, {}).get(name), torch.dtype):
                all_states[number][name] = flat[at : at + parameter.numel()].view(parameter.shape).cpu()
    return [all_states.get(number, {}) for number in range(len(bucket.parameters))]


def _gather_texts(text: str, group: dist.ProcessGroup, ranks: int) -> list[str]:
    """Return every rank's text, sent as bytes: a link between processes must carry nothing that could run code."""
    encoded = torch.tensor([*text.encode()], dtype=torch.uint8)
    sizes = list(torch.zeros(ranks, 1, dtype=torch.int64))
    dist.all_gather(sizes, torch.tensor([len(encoded)]), group=group)
    longest = int(max(sizes))
    texts = list(torch.zeros(ranks, longest, dtype=torch.uint8))
    dist.all_gather(texts, torch.cat([encoded, encoded.new_zeros(longest - len(encoded))]), group=group)
    return [bytes(encoded_text[: int(size)].tolist()).decode() for encoded_text, size in zip(texts, sizes, strict=True)]


def as_json(value: Any) -> dict[str, Any]:
    """Return a dtype, or a tensor with each of its bits, as JSON can hold it."""
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if torch.is_tensor(value):
        content = bytes(value.detach().contiguous().flatten().view(torch.uint8).tolist())
        return as_json(value.dtype) | {"shape": [*value.shape], "content": content.hex()}
    raise TypeError(f"an optimizer's state holds a {type(value).__name__}, which cannot be sent to the other ranks")


def from_json(stored: dict[str, Any]) -> Any:
    """Return what `as_json` was given."""
    if "dtype" not in stored:
        return stored
    dtype = getattr(torch, stored["dtype"])
    if "content" not in stored:
        return dtype
    content = torch.tensor([*bytes.fromhex(stored["content"])], dtype=torch.uint8)
    return content.view(dtype).reshape(stored["shape"])


def load_states(bucket, states: dict[torch.Tensor, dict[str, Any]]) -> None:
    """Load this rank's part of whole states, by parameter, into the bucket's optimizer."""
    cut = {
        number: {name: _part_of_state(name, value, piece) for name, value in states[piece.parameter].items()}
        for number, piece in enumerate(bucket.pieces)
        if piece.parameter in states
    }
    bucket.optimizer.load_state_dict(bucket.optimizer.state_dict() | {"state": cut})


def pieces_with_state(bucket) -> list[tuple[Any, dict[str, Any]]]:
    """Return the bucket's pieces that have a state here, with it."""
    states = bucket.optimizer.state
    return [(piece, states[piece.own]) for piece in bucket.pieces if states.get(piece.own)]


def _is_cut(value: Any, piece) -> bool:
    """Say whether a state has a number for each of the piece's elements, as a moment has, and a count of steps not."""
    return torch.is_tensor(value) and value.shape == piece.own.shape


def _dtype_or_value(value: Any, piece) -> Any:
    """Return what the other ranks need to know of a state: a dtype where it is cut, else the value itself."""
    if _is_cut(value, piece):
        return value.dtype
    return value.cpu() if torch.is_tensor(value) else value


def _part_of_state(name: str, value: Any, piece) -> Any:
    """Return the piece's part of a whole state; a count of steps, and what has another shape, stays as it is."""
    if torch.is_tensor(value) and value.shape == piece.parameter.shape and name != "step":
        return value.flatten()[piece.begin : piece.end].clone()
    return value.clone() if torch.is_tensor(value) else value  # the caller's checkpoint stays as it is
