"""Find the bug: five bucketed replicas that train. `SYMPTOMS` says what is wrong with each."""

from __future__ import annotations

SYMPTOMS = {
    "one_rank": "the gradients are added up on rank 0 alone: the other ranks keep something else",
    "one_bucket": "the bucket size is taken and not used: everything leaves at once, when backward is over",
    "undivided": "the ranks' gradients are added up and never divided by their number",
    "unwaited": "finish() comes back while gradients are still on their way",
    "no_first_broadcast": "the ranks start with different weights, and stay apart",
}
