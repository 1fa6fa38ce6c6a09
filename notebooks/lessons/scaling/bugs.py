"""Find the bug: three trainings that look right. `SYMPTOMS` says what each shows and which check names it.

A variant changes one thing: `share` (whether the sampler knows the ranks), `reshuffle` (whether it is told the epoch),
`one_shard` (rank 0 reports its own part of the test images).
"""

from __future__ import annotations

SYMPTOMS = {
    "no_sampler": "every rank trains on all images: N GPUs do N times the work",
    "no_set_epoch": "every epoch brings the images in the same order",
    "one_shard": "the accuracy is that of one rank's part of the test images",
}

VARIANTS = {
    "right": {},
    "no_sampler": {"share": False},
    "no_set_epoch": {"reshuffle": False},
    "one_shard": {"one_shard": True},
}
