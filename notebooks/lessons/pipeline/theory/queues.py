"""How torch runs a schedule on GPUs: it posts receives early, and messages wait in queues.

torch.distributed.pipelining turns interleaved and zero-bubble schedules into one list of entries per rank. GPipe and
1F1B receive just before use: `simulate` holds for them. Compared with the lists of torch 2.11 and 2.13, up to 3 chunks.
"""

from __future__ import annotations

from typing import NamedTuple

from lessons.pipeline.theory.schedules import Step
from lessons.pipeline.theory.simulator import Span, Times, gives

RANK, PAIR = "one queue per rank", "one queue per pair of ranks"


class Message(NamedTuple):
    """A send or a receive in a rank's list; `key` is the step that waits for what is sent."""

    what: str
    key: tuple[str, int, int]
    peer: int


def queue_of(torch_version: str) -> str:
    """Return which messages wait for each other on NCCL, by torch's version ("2.11.0+cu130").

    Up to 2.11 every message goes through the group's communicator: one queue per rank. From 2.12 on a message that is
    alone in its batch goes through a communicator of two ranks (pytorch #175712).
    """
    major, minor = (int(part) for part in torch_version.split(".")[:2])
    return RANK if (major, minor) < (2, 12) else PAIR


def posted(order: list[list[Step]]) -> list[list[Step | Message]]:
    """Return each rank's list: its steps, and its messages where torch posts them."""
    last = max(step.stage for steps in order for step in steps)
    todo, placed = [_with_pauses(steps) for steps in order], set()
    lists: list[list[Step | Message]] = [[] for _ in order]
    while any(todo):
        for rank, steps in enumerate(todo):  # one turn each
            if steps and (step := steps[0]):
                kind, stage, i = gives(step)
                to = stage + {"F": 1, "B": -1, "W": 0}[kind]
                source = 2 * stage - to
                if source != stage and 0 <= source <= last and (kind, source, i) not in placed:
                    continue
                lists[rank].append(step)
                placed.add((kind, stage, i))
                peer = to % len(order)
                if 0 <= to <= last and peer != rank:
                    lists[rank].append(Message("send", (kind, to, i), peer))
                    lists[peer].append(Message("receive", (kind, to, i), rank))
            del steps[:1]
    return lists


def _with_pauses(steps: list[Step]) -> list[Step | None]:
    """Return the steps with the two turns that a rank loses after each stage's last backward."""
    ends = "W" if any(step.kind == "W" for step in steps) else "B"
    last = {step.stage: place for place, step in enumerate(steps) if step.kind == ends}
    with_pauses: list[Step | None] = []
    for place, step in enumerate(steps):
        with_pauses += [step, None, None] if place in last.values() else [step]
    return with_pauses


def simulate_posted(order: list[list[Step]], times: Times, queue: str = RANK) -> list[Span]:
    """Return every span of the schedule when torch posts its messages, and they wait in queues.

    A message begins when its rank has reached its place and its queue is free. A receive ends one `transfer` after its
    send began. A step waits for its own receive. Transfers are no spans here.
    """
    todo, free, spans = posted(order), [0.0] * len(order), []
    queues: dict[tuple[int, int], list[tuple[Message, float]]] = {}
    expected: list[set] = [set() for _ in order]  # what a rank has posted a receive for
    busy, begun, here = {}, {}, {}
    moved = True
    while moved:
        moved = False
        for rank, entries in enumerate(todo):
            while entries:
                entry = entries[0]
                if isinstance(entry, Message):
                    queues.setdefault((rank, entry.peer if queue == PAIR else 0), []).append((entry, free[rank]))
                    if entry.what == "receive":
                        expected[rank].add(entry.key)
                else:
                    key = gives(entry)
                    if key in expected[rank] and key not in here:
                        break
                    start = max(free[rank], here.get(key, 0.0))
                    free[rank] = start + times.of(entry)
                    spans.append(Span(rank, *entry, start, free[rank]))
                moved = bool(entries.pop(0))
        for name, waiting in queues.items():
            while waiting and (waiting[0][0].what == "send" or waiting[0][0].key in begun):
                message, posted_at = waiting.pop(0)
                begin = max(posted_at, busy.get(name, 0.0))
                if message.what == "send":
                    begun[message.key] = begin
                else:
                    begin = max(begin, begun[message.key])
                    here[message.key] = begin + times.transfer
                busy[name], moved = begin + times.transfer, True
    if any(todo):
        raise ValueError("the messages of this schedule wait for each other")
    return spans + [Span(rank, "U", -1, -1, free[rank], free[rank] + time) for rank, time in enumerate(times.update)]
