"""Find the bug: training loops that hold memory they do not need. The broken loops are the worker's."""

from __future__ import annotations

SYMPTOMS = {
    "list_of_losses": "the losses of all micro-batches are summed first: each keeps its activations until then",
    "kept_by_hook": "a forward hook appends every block's output to a list that nobody clears",
    "autocast_around_backward": "autocast stays open over backward and update: its copies of the weights stay, too",
    "metric_keeps_graph": "a metric is collected without detach: each value keeps the graph that made it",
}
