"""The first idea: when backward is over, average one gradient after the other."""

from __future__ import annotations

from labkit.labs.ddp_from_scratch.worker.replicas import Replicas


class Naive(Replicas):
    """One collective a weight, each waited for before the next: nothing is hidden, and every call costs its latency."""

    def exchange(self) -> None:
        for weight in self.weights:
            self.average(self.gradient(weight)).wait()
