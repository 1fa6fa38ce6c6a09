"""Which GPUs of a node a launch uses: those that are free, held by a lock each until it ends; else it queues."""

from __future__ import annotations

import fcntl
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import psutil

from labkit import node
from labkit.engine import locks
from labkit.engine.errors import NotEnoughGpus, notice
from labkit.engine.launch_settings import limit_from_environment
from labkit.engine.plan import Plan
from labkit.node import Gpu, Node

POLL_SECONDS = 0.1
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
        self._locks = ExitStack()

    def take(self, limit_s: float, tell: Callable[[str], None]) -> None:
        """Take as many GPUs as the plan has workers; while too few are free, `tell` who holds what.

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
            folder = locks.locks_folder()
        except locks.LocksUnusable as error:
            if self.candidates:
                notice(f"other launches may use the same GPUs at the same time: {error}", stacklevel=2)
                self._use_gpus(self.candidates[: self.plan.gpus], _other_programs(self.candidates))
            return
        if not self.candidates:
            self._share_cores(locks.cores_file(folder))
            return
        deadline = time.monotonic() + limit_s

        def wait(why: str) -> None:
            tell(why)
            if time.monotonic() > deadline:
                raise NotEnoughGpus(f"no {self.plan.gpus} GPU(s) were free within {limit_s:.0f} s: {why}")
            time.sleep(POLL_SECONDS * random.uniform(0.5, 1.5))

        if user_limit is not None:
            self._stay_below(user_limit, folder, wait)
        files = {locks.gpu_file(folder, _gpu_name(gpu)): gpu for gpu in self.candidates}
        with ExitStack() as turn:
            turnstile = locks.turnstile_file(folder, _gpu_name(self.candidates[0]))
            while not locks.lock_first([turnstile], 1, turn, _warn_of("launches may take GPUs out of turn")):
                busy = [file for file in files if locks.holding_pids(file)]
                wait(f"{self._reason_to_wait(files, busy)}, behind {locks.owner(locks.holding_pids(turnstile))}")
            gpus, programs = self._lock_gpus(files, wait)
        self._use_gpus(gpus, programs)

    def _stay_below(self, user_limit: int, folder: Path, wait: Callable[[str], None]) -> None:
        """Wait until this user's launches have left as many of the course's GPUs to the user as this one needs."""
        risk = f"launches of yours that begin at the same time may take more than LABKIT_MAX_GPUS={user_limit}"
        while True:
            files = (locks.user_file(folder, number) for number in range(user_limit))
            free = len(locks.lock_first(files, self.plan.gpus, self._locks, _warn_of(risk), mode=0o600))
            if free == self.plan.gpus:
                return
            theirs = f"your other launches hold {user_limit - free} GPU(s), or wait for them"
            wait(f"waits, because {theirs}, and LABKIT_MAX_GPUS is {user_limit}")

    def _lock_gpus(
        self, files: dict[Path, Gpu], wait: Callable[[str], None]
    ) -> tuple[tuple[Gpu, ...], dict[str, list[str]]]:
        """Lock as many GPUs as the plan needs, once they are free; return them, and what other programs hold."""

        def unusable(file: Path, error: locks.LocksUnusable) -> None:
            _warn_of(f"another launch may use GPU {files[file].index} at the same time")(file, error)

        needed = self.plan.gpus
        while True:
            programs = _other_programs(self.candidates)
            order = sorted(files, key=lambda file: len(programs[_gpu_name(files[file])]))
            alone = [file for file in order if not programs[_gpu_name(files[file])]]
            free = locks.lock_first(alone if len(alone) >= needed else order, needed, self._locks, unusable)
            if len(free) == needed:
                return tuple(gpu for file, gpu in files.items() if file in free), programs
            wait(self._reason_to_wait(files, [file for file in files if file not in free]))

    def _reason_to_wait(self, files: dict[Path, Gpu], busy: list[Path]) -> str:
        held: dict[tuple[int, ...], list[str]] = {}
        for file in busy:
            held.setdefault(tuple(locks.holding_pids(file)), []).append(str(files[file].index))
        owners = "; ".join(f"GPU {', '.join(indices)}: {locks.owner(pids)}" for pids, indices in held.items())
        return f"waits for {self.plan.gpus} free GPU(s)" + f" ({owners})" * bool(owners)

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

    def _share_cores(self, file: Path) -> None:
        """Lock a shared file once per worker, and warn where it is locked more often than the node has cores."""
        with suppress(locks.LocksUnusable):
            for _ in range(self.plan.gpus):
                if (lock := locks.lock(file, kind=fcntl.LOCK_SH)) is not None:
                    self._locks.callback(lock.release)
        others = Counter(locks.holding_pids(file))
        others[os.getpid()] -= self.plan.gpus
        workers = (+others).total()
        if workers and workers + self.plan.gpus > self.node.cores:
            with suppress(psutil.Error):  # one has just ended
                users = ", ".join(sorted({locks.user_of(pid) for pid in +others}))
                theirs = (
                    f"{workers} worker(s) of other launches ({users}) use this node's {self.node.cores} core(s), too"
                )
                notice(f"{theirs}: times of this run may be longer", stacklevel=2)

    def release(self) -> None:
        """Give the GPUs back, or leave the queue; more than once changes nothing."""
        self._locks.close()


def _warn_of(risk: str) -> Callable[[Path, locks.LocksUnusable], None]:
    """Return what warns of a file that cannot be locked, and of what may follow from it."""
    return lambda file, error: notice(f"{risk}: {error}", stacklevel=2)


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


def _gpu_name(gpu: Gpu) -> str:
    return gpu.uuid or f"index-{gpu.index}"
