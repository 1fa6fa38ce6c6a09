"""Find the bug: sharded optimizers that train on. `SYMPTOMS` says what each shows; the broken code is the worker's."""

from __future__ import annotations

SYMPTOMS = {
    "shards_nothing": "every rank updates everything: the values are right, and each holds all states",
    "sends_nothing": "every rank updates its part and keeps it: replicas drift apart",
    "by_count": "every rank has as many parameters, but not as many elements",
    "own_part": "the state_dict holds this rank's part; the rest of each moment is zero",
    "stale_rate": "the optimizers inside keep the learning rate that they were made with",
}
