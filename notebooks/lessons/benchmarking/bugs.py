"""Find the bug: five benchmarks of one forward and backward. `SYMPTOMS` says what is wrong with each."""

from __future__ import annotations

SYMPTOMS = {
    "unsynchronised": "the clock stops when the work is launched, not when it is done",
    "first_inside": "the first iteration, which sets everything up, is one of those that count",
    "dropout_on": "the model is left in training mode: dropout draws random numbers in every forward",
    "uncleared": "gradients are never cleared: every backward adds to those before it",
    "data_inside": "each batch is made while the clock runs",
}
