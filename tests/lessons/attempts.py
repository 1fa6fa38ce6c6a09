"""Whole answers to exercises: wrong ones that look right, and right ones in a style of their own, each by what it does."""

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
    return max((matrix[a][b] for a, b in zip(ring, ring[1:] + ring[:1])), key=order.index)
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
}
