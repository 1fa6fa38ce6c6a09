"""Which GPUs of a node a launch uses: those that are free, held by a lock each until it ends; else it queues."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from labkit import node
from labkit.engine import locks
from labkit.engine.errors import NotEnoughGpus, notice
from labkit.engine.files import name_of_user
from labkit.engine.launch_settings import limit_from_environment
from labkit.engine.plan import Plan
from labkit.node import Gpu, Node

POLL_SECONDS = 0.1
OVERTAKE_SECONDS = 60.0  # GPUs that were free as long are taken, even if an earlier launch waits for more of them
ENDING_SECONDS = 0.5  # for the driver to forget processes of a launch that has just ended
STAND_INS = "LABKIT_STAND_IN_GPUS"  # a JSON file: names of GPUs that CPU workers reserve, and who else holds each


class Reservation:
    """The GPUs of one launch: `take` waits until enough are free, `release` gives them back.

    Attributes: `node` (this machine, with the GPUs of the launch first), `gpus` (those), `held` (what other programs
    hold of them, as sentences), `shared` (indices of GPUs that other programs hold, too).
    """

    def __init__(self, plan: Plan, here: Node, *, first_only: bool = False):
        self.plan, self.node, self.gpus = plan, here, ()
        self.candidates = _candidates(plan, here)[: plan.gpus if first_only else None]
        self.held: list[str] = []
        self.shared: set[int] = set()
        self._ticket: locks.Ticket | None = None
        self._locks: list[locks.Lock] = []
        self._folder = Path()
        self._free_since: float | None = None
        self._queued: float | None = None  # since when it waits, as its ticket has it
        self._written: tuple[str, tuple[Gpu, ...]] | None = None  # by the ticket
        self._why = ""  # it waits

    def take(self, limit_s: float, tell: Callable[[str], None]) -> None:
        """Take as many GPUs as the plan has workers; while too few are free, `tell` place and owners.

        Raises NotEnoughGpus where that is more than a user may hold, and where too few were free for `limit_s`,
        and NoLocksFolder where LABKIT_LOCKS names none. Where the locks' folder cannot be used, it warns and takes the
        first GPUs; on CPUs, it warns where cores are shared.
        """
        user_limit = limit_from_environment("LABKIT_MAX_GPUS")
        if self.candidates and user_limit is not None and self.plan.gpus > user_limit:
            allowed = f"LABKIT_MAX_GPUS={user_limit} allows each user {user_limit}"
            raise NotEnoughGpus(
                f"the plan wants {self.plan.gpus} GPU(s), and {allowed}: make it with gpus={user_limit}"
            )
        try:
            self._folder = locks.locks_folder()
            self._ticket = locks.Ticket(self._folder)
        except locks.LocksUnusable as error:
            if self.candidates:
                notice(f"other launches may use the same GPUs at the same time: {error}", stacklevel=2)
                self._use_gpus(self.candidates[: self.plan.gpus], _other_programs(self.candidates))
            return
        if self.candidates:
            self._queue(limit_s, user_limit, tell)
        else:
            self._ticket.write(workers=self.plan.gpus)
            self._warn_of_shared_cores()

    def _queue(self, limit_s: float, user_limit: int | None, tell: Callable[[str], None]) -> None:
        begun = time.monotonic()
        while not self._try_to_take(user_limit):
            tell(self._why)
            if time.monotonic() > begun + limit_s:
                raise NotEnoughGpus(f"no {self.plan.gpus} GPU(s) were free within {limit_s:.0f} s: {self._why}")
            time.sleep(POLL_SECONDS * random.uniform(0.5, 1.5))

    def _try_to_take(self, user_limit: int | None) -> bool:
        """Take the GPUs if enough are free, and nobody waits who came before."""
        if user_limit is None:
            return self._try_to_take_locked(None)
        try:
            user_lock = locks.lock(locks.user_file(self._folder), mode=0o600)
        except locks.LocksUnusable as error:
            risk = f"launches of yours that begin at the same time may take more than LABKIT_MAX_GPUS={user_limit}"
            notice(f"{risk}: {error}", stacklevel=2)
            return self._try_to_take_locked(user_limit)
        if user_lock is None:  # another launch of this user looks, and is done in a moment
            self._why = self._why or "waits for another launch of yours"
            return False
        try:
            return self._try_to_take_locked(user_limit)
        finally:
            user_lock.release()

    def _try_to_take_locked(self, user_limit: int | None) -> bool:
        needed, others = self.plan.gpus, locks.ticket_entries(self._folder, besides=self._ticket and self._ticket.file)
        mine = sum(len(other.gpus) for other in others if other.user == os.geteuid())
        if user_limit is not None and mine + needed > user_limit:
            self._why = f"waits, because your other launches hold {mine} GPU(s), and LABKIT_MAX_GPUS is {user_limit}"
            self._write_ticket("limit")
            return False
        programs = _other_programs(self.candidates)
        alone = [gpu for gpu in self.candidates if not programs[_gpu_name(gpu)]]
        order = (
            alone if len(alone) >= needed else sorted(self.candidates, key=lambda gpu: len(programs[_gpu_name(gpu)]))
        )
        taken = self._lock_gpus(order, {name for other in others for name in other.gpus})
        waiting = self._waiting_before(others)
        if len(taken) < needed:
            self._free_since = None
        elif not waiting or self._seconds_free() > OVERTAKE_SECONDS:
            self._use_gpus(tuple(gpu for gpu in self.candidates if gpu in taken), programs)
            self._write_ticket("", self.gpus)
            return True
        self._unlock_gpus()
        self._write_ticket("gpus")
        self._why = self._reason_to_wait(others, waiting, taken)
        return False

    def _lock_gpus(self, order: list[Gpu], claimed: set[str]) -> list[Gpu]:
        """Lock the first free GPUs in this order; a file that cannot be locked holds nobody up."""
        taken: list[Gpu] = []
        for gpu in order:
            if len(taken) == self.plan.gpus:
                break
            if _gpu_name(gpu) in claimed:
                continue
            try:
                lock = locks.lock(locks.gpu_file(self._folder, _gpu_name(gpu)))
            except locks.LocksUnusable as error:
                notice(f"another launch may use GPU {gpu.index} at the same time: {error}", stacklevel=2)
                taken.append(gpu)
                continue
            if lock is not None:
                self._locks.append(lock)
                taken.append(gpu)
        return taken

    def _waiting_before(self, others: list[locks.TicketEntry]) -> list[locks.TicketEntry]:
        """Return the launches that began to wait before this one."""
        queued = time.time() if self._queued is None else self._queued
        return [other for other in others if other.waits == "gpus" and other.since < queued]

    def _write_ticket(self, waits: str, gpus: tuple[Gpu, ...] = ()) -> None:
        """Write the ticket, if that changes it: a launch keeps its place in the queue."""
        if self._ticket is None or self._written == (waits, gpus):
            return
        self._ticket.write(workers=self.plan.gpus, waits=waits, gpus=tuple(map(_gpu_name, gpus)))
        self._written = (waits, gpus)
        self._queued = self._ticket.file.stat().st_ctime if waits == "gpus" else None

    def _seconds_free(self) -> float:
        """Return for how many seconds enough GPUs have been free."""
        now = time.monotonic()
        self._free_since = now if self._free_since is None else self._free_since
        return now - self._free_since

    def _reason_to_wait(
        self, others: list[locks.TicketEntry], waiting: list[locks.TicketEntry], free: list[Gpu]
    ) -> str:
        owners = {name: other for other in reversed(others) for name in other.gpus}
        busy = []
        for gpu in self.candidates:
            if (owner := owners.get(_gpu_name(gpu))) is not None:
                busy.append(f"GPU {gpu.index}: {_owner_text(owner)}")
            elif gpu not in free:
                busy.append(f"GPU {gpu.index}: another process")
        busy += [f"before you: {_owner_text(other)}" for other in waiting]
        return f"waits for {self.plan.gpus} free GPU(s), place {len(waiting) + 1} in the queue ({'; '.join(busy)})"

    def _use_gpus(self, gpus: tuple[Gpu, ...], programs: dict[str, list[str]]) -> None:
        """Use these GPUs, and note what other programs hold of them, once earlier launches have ended entirely."""
        rest = tuple(gpu for gpu in self.candidates if gpu not in gpus)
        self.gpus, self.node = gpus, replace(self.node, gpus=(*gpus, *rest))
        deadline = time.monotonic() + ENDING_SECONDS
        while any(programs[_gpu_name(gpu)] for gpu in gpus) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            programs = _other_programs(gpus)
        self._note_programs(programs)

    def update_holders(self) -> None:
        """Note which other programs hold the launch's GPUs now."""
        if self.gpus:
            self._note_programs(_other_programs(self.gpus))

    def _note_programs(self, programs: dict[str, list[str]]) -> None:
        for gpu in self.gpus:
            sentences = programs[_gpu_name(gpu)]
            self.shared |= {gpu.index} if sentences else set()
            self.held += [sentence for sentence in sentences if sentence not in self.held]

    def _warn_of_shared_cores(self) -> None:
        others = locks.ticket_entries(self._folder, besides=self._ticket and self._ticket.file)
        others = [other for other in others if not other.gpus and not other.waits]
        workers = sum(other.workers for other in others)
        if workers and workers + self.plan.gpus > self.node.cores:
            users = ", ".join(sorted({name_of_user(other.user) for other in others}))
            theirs = f"{workers} worker(s) of other launches ({users}) use this node's {self.node.cores} core(s), too"
            notice(f"{theirs}: times of this run may be longer", stacklevel=2)

    def _unlock_gpus(self) -> None:
        while self._locks:
            self._locks.pop().release()

    def release(self) -> None:
        """Give the GPUs back, or leave the queue; more than once changes nothing."""
        self._unlock_gpus()
        if self._ticket is not None:
            self._ticket.release()


def _candidates(plan: Plan, here: Node) -> tuple[Gpu, ...]:
    """Return the GPUs that the plan may use; on CPUs those that stand in for them, else none."""
    if plan.device == "cuda":
        return here.gpus
    return tuple(Gpu(index=index, uuid=name) for index, name in enumerate(_stand_ins()))


def _stand_ins() -> dict[str, str]:
    file = os.environ.get(STAND_INS)
    return json.loads(Path(file).read_text(encoding="utf-8")) if file else {}


def _other_programs(gpus: tuple[Gpu, ...]) -> dict[str, list[str]]:
    """Return what other programs hold of each GPU, by name; a slice of a GPU (MIG) shares nothing with the others."""
    if os.environ.get(STAND_INS):
        held = _stand_ins()
        return {
            _gpu_name(gpu): [f"GPU {gpu.index}: {held[_gpu_name(gpu)]}"] if held.get(_gpu_name(gpu)) else []
            for gpu in gpus
        }
    others = [holder for holder in node.holders(gpus) if holder.pid != os.getpid()]
    return {
        _gpu_name(gpu): [str(holder) for holder in others if holder.gpu == gpu.index and not gpu.mig] for gpu in gpus
    }


def _owner_text(entry: locks.TicketEntry) -> str:
    return f"{name_of_user(entry.user)} since {time.strftime('%H:%M:%S', time.localtime(entry.since))}"


def _gpu_name(gpu: Gpu) -> str:
    return gpu.uuid or f"index-{gpu.index}"
