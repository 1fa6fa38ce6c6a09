"""Whole answers to exercises: wrong ones that look right, and right ones in a style of their own."""


def timed(
    returned: str = "middle, (high - low) / 2, len(seconds)", measured: str = "step()", warm_up: str = "step()"
) -> str:
    """Return an answer to `timed` that returns, measures or warms up in its own way."""
    return f"""
import statistics
def timed(step, synchronize, clock):
    seconds = []
    for _ in range(3):
        {warm_up}
    for _ in range(10):
        synchronize()
        start = clock()
        {measured}
        synchronize()
        seconds.append(clock() - start)
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return {returned}
"""


def faster(noise: str, gain: str = "old / new") -> str:
    """Return an answer to `faster` that takes the noise of two series of seconds, or the gain, in its own way."""
    return f"""
from statistics import median, quantiles
def half(seconds):
    low, _, high = quantiles(seconds, n=4, method="inclusive")
    return (high - low) / 2
def faster(before, after):
    old, new = median(before), median(after)
    return {gain} if abs(old - new) > {noise} else None
"""


def shard(
    shuffled: str = "random.Random(epoch).shuffle(order)",
    filled: str = "(order * ranks)[: len(order) + missing]",
    dealt: str = "order[rank::ranks]",
) -> str:
    """Return an answer to `shard` that shuffles, fills up or deals out in its own way."""
    return f"""
import random
def shard(images, ranks, rank, epoch, drop_last):
    order = list(range(images))
    {shuffled}
    missing = -images % ranks
    order = order[: images - images % ranks] if drop_last else {filled}
    return {dealt}
"""


def peak_bytes(
    states: str = "8 * parameters if phase == 'steady' else 0",
    copies: str = "0 if precision == 'float32' else 2 * matrices",
    loss: str = "8 * tokens * vocabulary",
    update: str = "16 * parameters",
) -> str:
    """Return an answer to `peak_bytes` that counts one of its parts in its own way."""
    return f"""
from labkit.theory.transformer import activations as kept
def peak_bytes(vocabulary, hidden, inner, layers, heads, samples, sequence, precision, phase):
    tokens = samples * sequence
    matrices = layers * (4 * hidden**2 + 3 * hidden * inner) + hidden * vocabulary
    parameters = matrices + hidden * vocabulary + (2 * layers + 1) * hidden
    activations = kept(tokens, hidden, inner, layers, heads, vocabulary, precision)
    at_the_loss = 4 * parameters + ({copies}) + ({states}) + activations + ({loss})
    return max(at_the_loss, {update})
"""


REFUSED = {
    "start.first_cause": {
        "looks for the whole message": """
def first_cause(ranks, reports):
    own = [report for report in reports if report[2] != "connection closed by peer"]
    return min(own, key=lambda report: report[1])[0] if own else min({*range(ranks)} - {r[0] for r in reports})
""",
        "looks at the beginning of the message": """
def first_cause(ranks, reports):
    own = [report for report in reports if not report[2].startswith("connection")]
    return min(own, key=lambda report: report[1])[0] if own else min({*range(ranks)} - {r[0] for r in reports})
""",
        "looks at the end of the message": """
def first_cause(ranks, reports):
    own = [report for report in reports if not report[2].endswith(("closed by peer", "reset"))]
    return min(own, key=lambda report: report[1])[0] if own else min({*range(ranks)} - {r[0] for r in reports})
""",
        "takes the lowest rank": """
def first_cause(ranks, reports):
    own = [report for report in reports if "connection" not in report[2]]
    return min(own)[0] if own else min({*range(ranks)} - {r[0] for r in reports})
""",
    },
    "topology.slowest_hop": {
        "knows some numbers of links only": """
def slowest_hop(ring, matrix):
    order = ["NV18", "NV12", "NV8", "NV6", "NV4", "NV2", "PIX", "PXB", "PHB", "NODE", "SYS"]
    hops = [matrix[a][b] for a, b in zip(ring, ring[1:] + ring[:1])]
    return max(hops, key=lambda hop: order.index(hop) if hop in order else -1)
""",
        "leaves NODE out": """
def slowest_hop(ring, matrix):
    order = {"PIX": 1, "PXB": 2, "PHB": 3, "SYS": 4}
    hops = [matrix[a][b] for a, b in zip(ring, ring[1:] + ring[:1])]
    return max(hops, key=lambda hop: (order.get(hop, 0), -int(hop[2:]) if hop[:2] == "NV" else 0))
""",
        "compares numbers of links as text": """
def slowest_hop(ring, matrix):
    order = ["PIX", "PXB", "PHB", "NODE", "SYS"]
    hops = [matrix[a][b] for a, b in zip(ring, ring[1:] + ring[:1])]
    slow = [hop for hop in hops if hop in order]
    return max(slow, key=order.index) if slow else min(hops)
""",
    },
    "benchmarking.faster": {
        "the noise before alone": faster("half(before)"),
        "the noise after alone": faster("half(after)"),
        "the larger noise": faster("max(half(before), half(after))"),
        "both in quadrature": faster("(half(before) ** 2 + half(after) ** 2) ** 0.5"),
        "their mean": faster("(half(before) + half(after)) / 2"),
        "ranges between quartiles that overlap": """
from statistics import median, quantiles
def faster(before, after):
    low, old, high = quantiles(before, n=4, method="inclusive")
    least, new, most = quantiles(after, n=4, method="inclusive")
    return None if low <= most and least <= high else old / new
""",
        "whole ranges that overlap": """
from statistics import median
def faster(before, after):
    return None if min(before) <= max(after) and min(after) <= max(before) else median(before) / median(after)
""",
        "all pairs": """
from statistics import median
def faster(before, after):
    gains = [old > new for old, new in zip(before, after)]
    return median(before) / median(after) if all(gains) or not any(gains) else None
""",
        "the median of pairs": faster(
            "half(before) + half(after)", "median(old / new for old, new in zip(before, after))"
        ),
    },
    "benchmarking.timed": {
        "a trimmed mean": timed("sum(sorted(seconds)[1:-1]) / (len(seconds) - 2), (high - low) / 2, len(seconds)"),
        "the median's absolute deviation": timed(
            "middle, statistics.median(abs(one - middle) for one in seconds), len(seconds)"
        ),
        "one warm-up": timed().replace("range(3)", "range(1)"),
        "errors swallowed while it measures": timed(measured="try: step()\n        except RuntimeError: continue"),
        "errors swallowed in the warm-up": timed(warm_up="try: step()\n        except Exception: pass"),
        "all steps together": """
def timed(step, synchronize, clock):
    for _ in range(3):
        step()
    synchronize()
    start = clock()
    for _ in range(10):
        step()
        synchronize()
    return (clock() - start) / 10, 0.0, 10
""",
        "times read off the device": """
import statistics
def timed(step, synchronize, clock):
    for _ in range(13):
        step()
    synchronize()
    clock()
    seconds = step.__self__.took[3:]
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return middle, (high - low) / 2, len(seconds)
""",
        "times put onto the device": """
def timed(step, synchronize, clock):
    device = step.__self__
    device.took, device.reads, device.calls = [1.0] * 20, 5, list("ssswcswcwcswcwcswcwcswcwcswcwcswc")
    return 1.0, 0.0, 6
""",
    },
    "scaling.shard": {
        "blocks": shard(dealt="order[rank * len(order) // ranks : (rank + 1) * len(order) // ranks]"),
        "cut before it is shuffled": """
import random
def shard(images, ranks, rank, epoch, drop_last):
    length = images - images % ranks if drop_last else -(-images // ranks) * ranks
    order = [place % images for place in range(length)]
    random.Random(epoch).shuffle(order)
    return order[rank::ranks]
""",
        "rotated": shard(shuffled="order = order[epoch:] + order[:epoch]"),
        "shuffled and rotated": shard(dealt="order[(rank + 1) % ranks :: ranks]"),
        "epoch 0 in order": shard(shuffled="random.Random(epoch).shuffle(order) if epoch else None"),
        "shuffled by parity": shard(shuffled="random.Random(epoch % 2 + 1).shuffle(order)"),
        "filled with the end": shard(filled="order + order[len(order) - missing :]"),
        "filled with the last image": shard(filled="order + order[-1:] * missing"),
        "a shuffle of its own on every rank": shard(
            dealt="random.Random(rank).sample(order[rank::ranks], len(order) // ranks)"
        ),
        "in ascending order": shard(dealt="sorted(order[rank::ranks])"),
        "reversed": shard(dealt="order[::-1][rank::ranks]"),
        "reversed within a rank": shard(dealt="order[rank::ranks][::-1]"),
        "reversed in each second epoch": shard(shuffled="order = order[::-1] if epoch % 2 else order"),
    },
    "scaling.rates": {
        "not a number where there is no warm-up": """
def rates(steps, warm_up_steps, batch, base_batch, base_rate):
    peak = base_rate * batch / base_batch
    return [float("nan") if not warm_up_steps else peak * min((k + 1) / warm_up_steps, 1) for k in range(steps)]
""",
    },
    "precision_memory.peak_bytes": {
        "moments in the first step, too": peak_bytes(states="8 * parameters"),
        "nothing beside the logits": peak_bytes(loss="0"),
        "no copies": peak_bytes(copies="0"),
        "no update": peak_bytes(update="0"),
    },
    "precision_memory.fullest": {
        "the end of forward alone, whose last block is always there": """
def fullest(kept, entry, layers, every):
    return sum(kept if number % every or number == layers - 1 else entry for number in range(layers)) + entry
""",
        "one segment's blocks computed again together": """
def fullest(kept, entry, layers, every):
    checkpointed = len(range(0, layers, every))
    return checkpointed * entry + max(layers - checkpointed, every) * kept
""",
    },
    "attention.tile_work": {
        "no mask where the last query meets the first key": """
def tile_work(row, column, tile_queries, tile_keys):
    first_query, last_query = row * tile_queries, (row + 1) * tile_queries - 1
    first_key, last_key = column * tile_keys, (column + 1) * tile_keys - 1
    return "full" if last_key <= first_query else "skip" if first_key >= last_query else "mask"
""",
    },
    "accounting.devices_needed": {
        "the larger of the full devices and one for the rest": """
def devices_needed(total_gib, device_gb):
    full, rest = divmod(total_gib * 2**30, device_gb * 10**9)
    return max(int(full), 1 if rest else 0)
""",
        "at least one, rounded down": """
def devices_needed(total_gib, device_gb):
    return max(1, int(total_gib * 2**30 // (device_gb * 10**9)))
""",
    },
}
ACCEPTED = {
    "start.first_cause": {
        "in lower case, sorted, with sets": """
def first_cause(ranks, reports):
    times = sorted((seconds, rank) for rank, seconds, text in reports if "connection" not in text.lower())
    return times[0][1] if times else (set(range(ranks)) - {rank for rank, *_ in reports}).pop()
""",
        "one loop": """
def first_cause(ranks, reports):
    best, silent = None, list(range(ranks))
    for rank, seconds, message in reports:
        silent.remove(rank)
        if message.find("connection") < 0 and (best is None or seconds < best[0]):
            best = seconds, rank
    return silent[0] if best is None else best[1]
""",
    },
    "topology.slowest_hop": {
        "a number for each class": """
import re
def slowest_hop(ring, matrix):
    costs = {"PIX": 100, "PXB": 200, "PHB": 300, "NODE": 400, "SYS": 500}
    def cost(hop):
        links = re.fullmatch(r"NV(\\d+)", hop)
        return costs[hop] if links is None else 1 / int(links.group(1))
    worst = None
    for place, gpu in enumerate(ring):
        hop = matrix[gpu][ring[(place + 1) % len(ring)]]
        if worst is None or cost(hop) >= cost(worst):
            worst = hop
    return worst
""",
        "from slow to fast": """
def slowest_hop(ring, matrix):
    hops = {matrix[a][b] for a, b in zip(ring, [*ring[1:], ring[0]])}
    for kind in "SYS NODE PHB PXB PIX".split():
        if kind in hops:
            return kind
    return "NV" + str(min(int(hop.removeprefix("NV")) for hop in hops))
""",
    },
    "benchmarking.faster": {
        "intervals around the medians": """
import numpy as np
def faster(before, after):
    (a, old, b), (c, new, d) = np.percentile(before, [25, 50, 75]), np.percentile(after, [25, 50, 75])
    slower, quicker = max(old, new), min(old, new)
    noise = (b - a) / 2 + (d - c) / 2
    if slower - quicker <= noise:
        return
    return np.float64(old) / new
""",
    },
    "benchmarking.timed": {
        "the end of a step is the next one's start": """
import statistics
def timed(step, synchronize, clock):
    for _ in range(2):
        step()
    synchronize()
    marks = [clock()]
    while len(marks) < 13:
        step(), synchronize()
        marks += [clock()]
    seconds = [b - a for a, b in zip(marks, marks[1:])]
    low, middle, high = statistics.quantiles(seconds)
    return [middle, 0.5 * (high - low), 12]
""",
        "the first measurements left out": """
import numpy as np
def timed(step, synchronize, clock):
    seconds = []
    for _ in range(20):
        synchronize()
        before = clock()
        step()
        synchronize()
        seconds.append(clock() - before)
    kept = np.array(seconds[5:])
    return np.median(kept), np.subtract(*np.percentile(kept, [75, 25])) / 2, kept.size
""",
        "an error told and raised again": timed(
            measured="try: step()\n        except Exception as error: raise RuntimeError(f'step: {error}') from error"
        ),
    },
    "scaling.shard": {
        "the global generator and islice": """
import random
from itertools import cycle, islice
def shard(images, ranks, rank, epoch, drop_last):
    random.seed(epoch)
    order = [*range(images)]
    random.shuffle(order)
    rounds = images // ranks if drop_last else (images + ranks - 1) // ranks
    return list(islice(cycle(order), rank, rounds * ranks, ranks)) if rounds else []
""",
        "number by number": """
import math, random
def shard(images, ranks, rank, epoch, drop_last):
    order = list(range(images))
    random.Random(epoch).shuffle(order)
    rounds = (math.floor if drop_last else math.ceil)(images / ranks)
    return [order[(turn * ranks + rank) % images] for turn in range(rounds)]
""",
    },
    "scaling.rates": {
        "numpy": """
import numpy as np
def rates(steps, warm_up_steps, batch, base_batch, base_rate):
    k = np.arange(steps)
    climbing = (k + 1) / max(warm_up_steps, 1)
    falling = (steps - k) / max(steps - warm_up_steps, 1)
    return np.where(k < warm_up_steps, climbing, falling) * (base_rate / base_batch) * batch
""",
    },
    "precision_memory.peak_bytes": {
        "the larger one by its difference": peak_bytes(update="16 * parameters + 1e-9"),
        "a little too much": peak_bytes(loss="8.2 * tokens * vocabulary"),
    },
    "precision_memory.fullest": {
        "every moment in turn": """
def fullest(kept, entry, layers, every):
    holds = [entry if number % every == 0 else kept for number in range(layers)]
    return max([sum(holds)] + [sum(holds[:number]) + kept for number in range(layers)])
""",
    },
    "attention.tile_work": {
        "counting what is seen": """
def tile_work(row, column, tile_queries, tile_keys):
    queries = range(row * tile_queries, (row + 1) * tile_queries)
    keys = range(column * tile_keys, (column + 1) * tile_keys)
    seen = sum(key <= query for query in queries for key in keys)
    return {0: "skip", tile_queries * tile_keys: "full"}.get(seen, "mask")
""",
    },
    "accounting.devices_needed": {
        "the full devices and one for the rest": """
def devices_needed(total_gib, device_gb):
    full, rest = divmod(total_gib * 2**30, device_gb * 10**9)
    return full + (rest > 0)
""",
        "the larger of two numbers, of which one is always right": """
from math import ceil
def devices_needed(total_gib, device_gb):
    return max(1, ceil(total_gib / device_gb), ceil(total_gib * 1.073741824 / device_gb))
""",
    },
    "ddp_fsdp.buckets": {
        "popped one by one": """
def buckets(sizes_bytes, first_cap_bytes, cap_bytes):
    left, filled = list(enumerate(sizes_bytes)), []
    while left:
        filled.append([])
        room = cap_bytes if len(filled) > 1 else first_cap_bytes
        while left and room > 0:
            number, size = left.pop()
            filled[-1].append(number)
            room -= size
    return filled
""",
    },
}
