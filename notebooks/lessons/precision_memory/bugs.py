"""Find the bug: training loops that hold memory they do not need, beside the right one. Workers run each of them.

`metric()` is the entropy of the last predictions. `watch.steps()` yields once per step and measures it;
`watch.backward_done()` notes what is held at the end of backward.
"""

from __future__ import annotations

SYMPTOMS = {
    "list_of_losses": "the losses of all micro-batches are summed first: each keeps its activations until then",
    "autocast_around_backward": "autocast stays open over backward and update: its copies of the weights stay, too",
    "metric_keeps_graph": "a metric is collected without detach: each value keeps the graph that made it",
}


def right(model, batches, optimizer, autocast, metric, watch):
    metrics = []
    for _ in watch.steps():
        for tokens, targets in batches:
            with autocast():
                loss = model(tokens, targets) / len(batches)
                metrics.append(metric().item())
            loss.backward()
        watch.backward_done()
        optimizer.step()
        optimizer.zero_grad()


def list_of_losses(model, batches, optimizer, autocast, metric, watch):
    metrics = []
    for _ in watch.steps():
        losses = []
        for tokens, targets in batches:
            with autocast():
                loss = model(tokens, targets) / len(batches)
                metrics.append(metric().item())
            losses.append(loss)
        sum(losses[1:], start=losses[0]).backward()
        watch.backward_done()
        optimizer.step()
        optimizer.zero_grad()


def autocast_around_backward(model, batches, optimizer, autocast, metric, watch):
    metrics = []
    for _ in watch.steps():
        with autocast():
            for tokens, targets in batches:
                loss = model(tokens, targets) / len(batches)
                metrics.append(metric().item())
                loss.backward()
            watch.backward_done()
            optimizer.step()
            optimizer.zero_grad()


def metric_keeps_graph(model, batches, optimizer, autocast, metric, watch):
    metrics = []
    for _ in watch.steps():
        for tokens, targets in batches:
            with autocast():
                loss = model(tokens, targets) / len(batches)
                metrics.append(metric())
            loss.backward()
        watch.backward_done()
        optimizer.step()
        optimizer.zero_grad()
