"""Find the bug: four trainings that look right. `SYMPTOMS` says what each shows and which check names it.

A variant changes one thing: `share` (whether the sampler knows the ranks), `reshuffle` (whether it is told the epoch),
`sum` (a communication hook that forgets to divide), `unused` (a layer that no forward calls).
"""

from __future__ import annotations

SYMPTOMS = {
    "no_sampler": "every rank trains on the same samples: N GPUs do the work of one",
    "summed": "the ranks' gradients are added up and never divided by their number",
    "no_set_epoch": "every epoch brings the samples in the same order",
    "unused_parameter": "a parameter takes no part in the loss, and its bucket waits for ever",
}

VARIANTS = {
    "no_sampler": {"share": False},
    "summed": {"sum": True},
    "no_set_epoch": {"reshuffle": False},
    "unused_parameter": {"unused": True},
}
