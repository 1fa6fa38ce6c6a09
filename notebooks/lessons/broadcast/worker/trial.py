"""What a function does with lanes: tried on buffers, and told copy by copy. Imports nothing of labkit but the lanes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from lessons.broadcast.worker.lanes import Copy, Lanes

_PRIME = 16_777_213  # the largest below 2^24, up to which float32 holds every integer
_REPEATS = 3


def pattern(elements: int, seed: int, device: torch.device) -> torch.Tensor:
    """Return float32 values that no other seed and no shifted chunk repeats: (48271·i + seed) mod _PRIME."""
    values = torch.empty(elements, dtype=torch.float32, device=device)
    piece = 2**26  # int64 on the way: half a GiB at a time
    for start in range(0, elements, piece):
        index = torch.arange(start, min(start + piece, elements), device=device)
        values[start : start + piece] = index.mul_(48271).add_(seed * 7919).remainder_(_PRIME)
    return values


class Buffers:
    """The host tensor, pageable and pinned, a copy a GPU, and on every GPU a reference that no copy method wrote."""

    def __init__(self, elements: int, devices: list[torch.device], has_source: bool = True):
        self.elements, self.devices, self.has_source, self.seed = elements, devices, has_source, None

    def allocate(self) -> None:
        """Take the memory, once: by the first point, which is not tried where it does not fit."""
        self.copies = [torch.empty(self.elements, device=device) for device in self.devices]
        self.sources = {}
        if self.has_source:
            pageable = torch.zeros(self.elements)  # zeros, not empty: its pages exist before the clock runs
            on_gpu = self.devices[0].type == "cuda"
            pinned = torch.empty(self.elements, pin_memory=True) if on_gpu else pageable
            self.sources = {"pageable": pageable, "pinned": pinned}

    def fill(self, seed: int) -> None:
        """Put the seed's values into the sources and the references."""
        if self.seed is None:
            self.allocate()
        if seed != self.seed:
            self.references = []  # before the next ones are made: two pairs may not fit
            made = {device: pattern(self.elements, seed, device) for device in dict.fromkeys(self.devices)}
            self.references = [made[device] for device in self.devices]
            self.seed = seed
            self.restore()

    def restore(self) -> None:
        """Put the seed's values into the sources again."""
        for source in self.sources.values():
            source.copy_(self.references[0])

    def poison(self) -> None:
        """Fill every copy with NaN, so that a value left over from an earlier repeat cannot pass."""
        for copy in self.copies:
            copy.fill_(float("nan"))

    def wrong(self, part_of: Callable[[int], slice] = lambda gpu: slice(None)) -> list[int]:
        """Return the GPUs whose copy differs from the reference, in the part that each should hold."""
        pairs = enumerate(zip(self.copies, self.references, strict=True))
        return [gpu for gpu, (copy, right) in pairs if not torch.equal(copy[part_of(gpu)], right[part_of(gpu)])]


def row_of(repeat: SimpleNamespace, wrong: list[int]) -> dict[str, Any]:
    """Return the row of one repeat; a copy that differs makes it a failed one."""
    status = f"wrong copy on GPU {', '.join(map(str, wrong))}" if wrong else "ok"
    return {"iteration": repeat.iteration, "warm_up": repeat.warm_up, "status": status, "seconds": repeat.seconds}


def timed_copies(work: Callable, source: torch.Tensor, buffers: Buffers, chunks: int) -> list[Copy]:
    """Run the method twice on lanes that log, and return the second log: when each copy began and ended."""
    lanes = Lanes(buffers.devices, timed=True)
    for _ in range(2):
        lanes.anchor()
        work(source, buffers.copies, chunks, lanes)
        lanes.wait()
    log = list(lanes.timeline())
    lanes.close()
    return log


def _fewer_chunks(chunks: int) -> int:
    """Return the largest smaller number of chunks that divides a tensor as well."""
    return next((count for count in range(chunks - 1, 0, -1) if chunks % count == 0), chunks)


def calls_of(work: Callable, source: torch.Tensor, buffers: Buffers, chunks: int) -> dict[str, Any]:
    """Run a function once; return what it asked of the lanes, in values alone.

    `copies`: each one's lane, target, origin, and the numbers of those that it was told to wait for, and of those that
    the function had waited for; `over`: those that it had waited for at its end. `spoilt`: after how many copies it was
    seen that the source did not hold its values any more, though a copy still read it. `claimed`: what it returned.
    """
    lanes, spoilt, before = Lanes(buffers.devices), [], source.clone()

    def note_spoilt_source() -> None:
        reading = any(_place(copy.origin, source, buffers.copies)[0] == "host" for copy in lanes.log.unfinished())
        if reading and not torch.equal(source, before):
            spoilt.append(len(lanes.log))

    lanes.log.before_wait = note_spoilt_source
    claimed = work(source, buffers.copies, chunks, lanes)
    note_spoilt_source()
    log, over = list(lanes.log), [*lanes.log.over.values()]
    lanes.log.before_wait = lambda: None
    lanes.wait()
    lanes.close()
    number = {id(copy): index for index, copy in enumerate(log)}
    buffers.restore()
    copies = []
    for copy in log:
        ends = [_place(end, source, buffers.copies) for end in (copy.target, copy.origin)]
        copies.append([copy.lane, *ends, *(_copy_numbers(waits, number) for waits in (copy.after, copy.waited))])
    claimed = claimed if isinstance(claimed, float) else None
    return {"copies": copies, "over": _copy_numbers(over, number), "spoilt": spoilt[:1], "claimed": claimed}


def _copy_numbers(copies: Iterable[Copy], number: dict[int, int]) -> list[int]:
    return [number[id(copy)] for copy in copies if id(copy) in number]


def replay_function(calls: dict[str, dict[str, Any]]) -> Callable:
    """Return a function that asks of the lanes what another one did, which `calls_of` tells by the number of chunks."""

    def work(source: torch.Tensor, copies: list[torch.Tensor], chunks: int, lanes: Lanes) -> float | None:
        calls_asked, made, over = calls[str(chunks)], [], set()

        def wait(numbers: list[int]) -> None:
            if len(made) in calls_asked["spoilt"]:
                source.zero_()
            for number in sorted({*numbers} - over):
                _lane(lanes, calls_asked["copies"][number][0]).wait()
            over.update(numbers)

        for lane, target, origin, after, waited in calls_asked["copies"]:
            wait(waited)
            ends = (_tensor_at(end, source, copies) for end in (target, origin))
            made.append(_lane(lanes, lane).copy(*ends, after=made[after[0]] if after else None))
        wait(calls_asked["over"])
        return calls_asked["claimed"]

    return work


def _lane(lanes: Lanes, name: str) -> Any:
    origin, _, target = name.partition(" → ")
    return lanes.host(int(target)) if origin == "host" else lanes.peer(int(origin), int(target))


def _tensor_at(place: tuple[str, int, int], source: torch.Tensor, copies: list[torch.Tensor]) -> torch.Tensor:
    """Return what `_place` found; what lay elsewhere is a new buffer without values."""
    buffer, first, elements = place
    if buffer == "elsewhere":
        return torch.full((elements,), float("nan"))
    return (source if buffer == "host" else copies[int(buffer)])[first : first + elements]


def copy_rows(log: Iterable[Copy], source: torch.Tensor, copies: list[torch.Tensor]) -> list[dict[str, Any]]:
    """Return a row for each copy of a log: lane, times, buffers, elements, and the numbers of those it waits for."""
    log = list(log)
    number = {id(copy): index for index, copy in enumerate(log)}
    rows = []
    for index, copy in enumerate(log):
        origin, first, _ = _place(copy.origin, source, copies)
        target, _, elements = _place(copy.target, source, copies)
        after, waited = (_copy_numbers(waits, number) for waits in (copy.after, copy.waited))
        when = {"lane": copy.lane, "start_us": copy.start_us, "end_us": copy.end_us, "index": index}
        what = {"origin": origin, "target": target, "first": first, "elements": elements}
        rows.append(when | what | {"after": after, "waited": waited})
    return rows


def _place(tensor: torch.Tensor, source: torch.Tensor, copies: list[torch.Tensor]) -> tuple[str, int, int]:
    """Return a tensor's buffer ("host", "0", "1", … or "elsewhere"), its first element there, and how many."""
    for name, buffer in [("host", source), *((str(gpu), copy) for gpu, copy in enumerate(copies))]:
        first = (tensor.data_ptr() - buffer.data_ptr()) // buffer.element_size()
        if tensor.device == buffer.device and 0 <= first < len(buffer):
            return name, first, tensor.numel()
    return "elsewhere", 0, tensor.numel()


def tried(work: Callable, buffers: Buffers, memory: str, chunks: int, repeat: Callable) -> tuple[list, list]:
    """Return a row a repeat of a function, what it claims and does to the source in it, and a row a copy of one call.

    `repeat(call, before=…)` repeats a call, and yields what `Worker.time` does. In each row stands what the function
    did with fewer chunks, once: `fewer_chunks`, and `fewer_pulls`, its copies from the host; and `source_in_use`:
    whether it changed the source then while a copy from there was asked for that it had not waited for.
    """
    source, fewer = buffers.sources[memory], _fewer_chunks(chunks)
    calls = calls_of(work, source, buffers, fewer)
    lanes, before = Lanes(buffers.devices), source.clone()
    pulls = sum(origin[0] == "host" for _, _, origin, *_ in calls["copies"])
    rehearsed = {"fewer_chunks": fewer, "fewer_pulls": pulls, "source_in_use": bool(calls["spoilt"])}

    def broadcast() -> tuple[Any, int]:
        claimed = work(source, buffers.copies, chunks, lanes)
        in_flight = lanes.in_flight()
        lanes.wait()
        return claimed, in_flight

    rows = []
    for timing in repeat(broadcast, before=buffers.poison):
        claimed, in_flight = timing.result
        changed = not torch.equal(source, before)  # outside the clock: the host reads the whole tensor
        seen = {"source_changed": changed, "in_flight": in_flight} | rehearsed
        own_clock = {"claimed_seconds": claimed} if isinstance(claimed, float) else {}
        rows.append(row_of(timing, buffers.wrong()) | seen | own_clock)
        buffers.restore()
    lanes.close()
    log = timed_copies(work, source, buffers, chunks)
    buffers.restore()
    return rows, copy_rows(log, source, buffers.copies)


def _repeats(call: Callable, before: Callable) -> Iterator[SimpleNamespace]:
    for iteration in range(_REPEATS):
        before()
        begun = time.perf_counter()
        result, seconds = call(), time.perf_counter() - begun
        yield SimpleNamespace(iteration=iteration, warm_up=not iteration, seconds=seconds, result=result)


def drive(
    work: Callable, elements: int, gpus: int, chunks: int, seed: int, calls: dict[str, dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return what a worker measures of a function, on host buffers that stand for GPUs: rows, spans, and its calls.

    With `calls` it measures these, and the function is not called.
    """
    work = work if calls is None else replay_function(calls)
    torch.set_num_threads(1)
    buffers = Buffers(elements, [torch.device("cpu")] * gpus)
    buffers.fill(seed)
    counts = (chunks, _fewer_chunks(chunks))
    calls = {str(count): calls_of(work, buffers.sources["pageable"], buffers, count) for count in counts}
    rows, spans = tried(work, buffers, "pageable", chunks, _repeats)
    return {"rows": rows, "spans": spans, "calls": calls}
