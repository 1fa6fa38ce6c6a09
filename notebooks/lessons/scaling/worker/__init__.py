"""Lab 13, what the workers do: train ResNet-18 on a rank's share of the images, and measure what the plan asks for."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from labkit.engine.worker import Worker
from labkit.worker import settings
from lessons.scaling.plan import Accuracy, Communication, Epochs, Messages
from lessons.scaling.worker.communication import communicate, record_messages
from lessons.scaling.worker.epochs import learn, time_epochs
from lessons.scaling.worker.images import Augmented, load
from lessons.scaling.worker.trials import try_variant

_MEASURES = {Epochs: time_epochs, Communication: communicate, Accuracy: learn, Messages: record_messages}


def prepare(worker: Worker) -> SimpleNamespace:
    """Make the process groups and the images, which all points share."""
    plan = worker.plan
    groups = settings.prepare(worker)
    training, testing = load(plan.images, plan.training, plan.testing, worker.device)
    on_host = any(point.loader == "host" for point in plan.points())
    host = Augmented(training.to(torch.device("cpu"))) if on_host else None
    return SimpleNamespace(groups=groups, training=training, testing=testing, host=host)


def measure(worker: Worker, point: SimpleNamespace) -> None:
    """Measure one point on the ranks that it uses; the others wait where all points end."""
    if worker.rank >= point.ranks:
        return
    settings.set_precision(point.precision)
    _MEASURES.get(type(worker.plan), try_variant)(worker, point)
    settings.release_memory(worker)
