"""Find the bug: five trainings that look right. `SYMPTOMS` says what each shows and which check names it.

A variant changes one thing: `share` (whether the sampler knows the ranks), `reshuffle` (whether it is told the epoch),
`one_shard` (rank 0 reports its own part of the test images), `unscaled` (the learning rate of one GPU's batch),
`first_epoch` (the clock includes it).
"""

from __future__ import annotations

SYMPTOMS = {
    "no_sampler": "every rank trains on all images: N GPUs do N times the work",
    "no_set_epoch": "every epoch brings the images in the same order",
    "one_shard": "the accuracy is that of one rank's part of the test images",
    "unscaled": "the batch is N times as large, and the learning rate is not",
    "first_epoch": "the mean time of an epoch includes the first, in which everything starts up",
}

VARIANTS = {
    "right": {},
    "no_sampler": {"share": False},
    "no_set_epoch": {"reshuffle": False},
    "one_shard": {"one_shard": True},
    "unscaled": {"unscaled": True},
    "first_epoch": {"first_epoch": True},
}
