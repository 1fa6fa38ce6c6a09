"""Workers started by torchrun's own elastic agent, in the agent process beside a kernel."""

from __future__ import annotations

import logging
import signal
import tempfile
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.api import MultiprocessContext, RunProcsResult
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from labkit.engine import forkserver, rendezvous
from labkit.engine.enter import HELD_SIGNALS, enter
from labkit.engine.messages import LaunchOutcome, StartWorkers

MONITOR_SECONDS = 0.05


def start_workers(run_id: str, log_folder: Path, request: StartWorkers) -> LaunchOutcome:
    """Start the workers, wait for their end, and return the ranks that failed `first`, their `exits`, and `error`.

    The ranks of one node meet at a file in this process's temporary folder, which is removed afterwards. With a
    `rendezvous` in the request, they are those of several nodes, and meet at a store of the first node.
    """
    store, of_nodes = Path(tempfile.gettempdir(), run_id), request.get("rendezvous")
    nodes = of_nodes["nodes"] if of_nodes else 1
    config = LaunchConfig(
        min_nodes=nodes,
        max_nodes=nodes,
        nproc_per_node=request["workers"],
        run_id=run_id,
        rdzv_backend="rendezvous" if of_nodes else "loopback",
        rdzv_configs={"rendezvous": of_nodes} if of_nodes else {},
        local_addr=of_nodes.get("own_address") if of_nodes else rendezvous.ADDRESS,
        max_restarts=0,  # a restart is a fresh launch of the points that are left
        monitor_interval=MONITOR_SECONDS,
        start_method=forkserver.start_method(),
        logs_specs=DefaultLogsSpecs(log_dir=str(log_folder)),
    )
    config.numa_options = None  # workers may use every core; a lab that binds them says so itself
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD_SIGNALS)  # a spawned worker inherits it from this thread
    try:
        share = {**request, "parent": forkserver.parent_of_workers(), "store": of_nodes or str(store)}
        elastic_launch(config, enter)(share)
    except ChildFailedError as error:
        exits = {rank: failure.exitcode for rank, failure in error.failures.items()}
        return LaunchOutcome(first=sorted(exits), exits=exits, error="")
    finally:
        store.unlink(missing_ok=True)
    return LaunchOutcome(first=[], error="")


def _status_0_can_be_a_failure() -> None:
    """Make torch's agent treat a worker that ended without returning as failed, even if its exit status is 0.

    torch's own poll waits for the return value of such a worker for ever.
    """
    poll = MultiprocessContext._poll

    def checked(self: Any) -> RunProcsResult | None:
        result = poll(self)
        left = {*range(self.nprocs)} - {*self._pc.sentinels.values()} - {*self._return_values}
        if result is not None or not left:
            return result
        self.close()
        pids, files = self._pc.pids(), self.error_files
        failures = {rank: ProcessFailure(rank, pids[rank], 0, files[rank]) for rank in left}
        return RunProcsResult(failures=failures, stdouts=self.stdouts, stderrs=self.stderrs)

    MultiprocessContext._poll = checked


_status_0_can_be_a_failure()
# The errors that it logs are told in the outcome, and logging the first takes a second of further imports.
logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
