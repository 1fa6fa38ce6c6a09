"""Answers that err at one boundary, count or size alone, and right ones that are written differently.

Each is the reference solution with a text replaced.
"""


def closed(code: str) -> tuple[str, str]:
    """Return the slip of an `accumulation_for` that computes its result from x, the exact number of micro-batches."""
    exact = "efficiency * communication_s / ((1 - efficiency) * compute_s)"
    return "    micro_batches = 1\n", f"    from math import ceil, floor\n    x = {exact}\n    return {code}\n"


WRONG = {
    "start.place": [
        ("rank // gpus_per_node", "int(rank >= gpus_per_node)"),
        ("rank // gpus_per_node", "min(rank // gpus_per_node, 3)"),
        ("rank // gpus_per_node", "round(rank / gpus_per_node)"),
        ("rank // gpus_per_node", "-(-rank // gpus_per_node)"),
        ("rank // gpus_per_node", "int(rank / (gpus_per_node + 1e-3))"),
        ("rank % gpus_per_node", "rank & (gpus_per_node - 1)"),
        ("rank % gpus_per_node", "rank % 8 % gpus_per_node"),
        ("return", "gpus_per_node = max(2, gpus_per_node)\n    return"),
        ("return", "gpus_per_node = min(4, gpus_per_node)\n    return"),
    ],
    "start.first_cause": [
        ("key=lambda report: report[1]", "key=lambda report: int(report[1])"),
        ("key=lambda report: report[1]", "key=lambda report: round(report[1])"),
        ("key=lambda report: report[1]", "key=lambda report: round(report[1], 1)"),
        ("key=lambda report: report[1]", "key=lambda report: str(report[1])"),
        ("min(errors, key=lambda report: report[1])", "min(errors[::-1], key=lambda report: int(report[1]))"),
        ("min(errors, key=lambda report: report[1])", "errors[-1]"),
        ("min(errors, key=lambda report: report[1])", "min(errors)"),
        ("min(errors, key=", "min(errors[:2], key="),
        ("if errors:", "if len(errors) > 1:"),
        ("for rank in range(ranks)", "for rank in [*range(4), 0]"),
        ("return next(rank for rank in range(ranks) if rank not in reported)", "return ranks - 1"),
        ("return next(rank for rank in range(ranks) if rank not in reported)", "return len(reported)"),
    ],
    "topology.slowest_hop": [
        ("-int(path[2:])", "-int(path[2])"),
        ("-int(path[2:])", "-int(path[-1])"),
        ("-int(path[2:])", "path[:1:-1]"),
        ("range(len(ring))", "range(min(4, len(ring)))"),
        ("range(len(ring))", "range(min(len(ring), 5))"),
        ("range(len(ring))", "range(len(ring) - 1)"),
        ("    hops = ", "    ring = sorted(ring)\n    hops = "),
    ],
    "topology.best_ring": [
        ("permutations(range(len(gb_per_s)), count)", "permutations(range(min(4, len(gb_per_s))), count)"),
        ("permutations(range(len(gb_per_s)), count)", "permutations(range(1, len(gb_per_s)), count)"),
        (
            "permutations(range(len(gb_per_s)), count)",
            "(order for order in permutations(range(len(gb_per_s)), count) if order[0] == 0)",
        ),
        (
            "permutations(range(len(gb_per_s)), count)",
            "(order for order in permutations(range(len(gb_per_s)), count) if [*order] == sorted(order))",
        ),
        ("for i in range(count))", "for i in range(min(count, 4)))"),
        ("numa[gpu]) for gpu", "gpu // 4) for gpu"),
        ("numa[gpu]) for gpu", "gpu * 2 // len(numa)) for gpu"),
    ],
    "pipeline.one_f_one_b": [
        ("min(ranks - 1 - rank, micro_batches)", "min(ranks - rank, micro_batches)"),
        ("min(ranks - 1 - rank, micro_batches)", "min(ranks - 1 - rank, micro_batches, 3)"),
        ("    ahead =", "    ranks = min(ranks, 4)\n    ahead ="),
        ("    ahead =", "    micro_batches = min(micro_batches, 30)\n    ahead ="),
        ("    ahead =", "    micro_batches = max(micro_batches, 2)\n    ahead ="),
        ('return steps + [f"B{number}" for', 'return sorted(steps) + [f"B{number}" for'),
        ('f"F{number}"', 'f"F{number % 10}"'),
    ],
    "pipeline.balanced_split": [
        ("    best =", "    stages = min(stages, 4)\n    best ="),
        ("    best =", "    times = [int(time) for time in times]\n    best ="),
        ("    best =", "    times = [round(time) for time in times]\n    best ="),
        ("min(longer.get(end, option), option)", "longer.get(end, option)"),
        ("min(longer.get(end, option), option)", "option"),
        ("max(slowest, sum(times[placed:end]))", "slowest + sum(times[placed:end]) ** 2"),
        ("range(placed + 1, len(times) + 1)", "range(placed + 1, min(placed + 4, len(times)) + 1)"),
        ("range(placed + 1, len(times) + 1)", "range(placed + 1, min(placed + 5, len(times)) + 1)"),
    ],
    "ddp_fsdp.sent_bytes": [
        ("(ranks - 1) / ranks", "3 / 4"),
        ("(ranks - 1) / ranks", "(ranks - 1) / ranks if ranks > 1 else 1"),
        ("(ranks - 1) / ranks", "(min(ranks, 4) - 1) / min(ranks, 4)"),
        ("(ranks - 1) / ranks", "(max(ranks, 3) - 1) / max(ranks, 3)"),
        ("(ranks - 1) / ranks", "(1 - 1 / 2 ** (ranks - 1).bit_length())"),
    ],
    "ddp_fsdp.buckets": [
        ("held, room = 0, cap_bytes", "held, room = 0, cap_bytes if len(filled) == 2 else first_cap_bytes"),
        ("held >= room", "held >= room and len(filled) < 4"),
        ("held >= room", "held > room - 1024**2 // 8"),
        ("held >= room", "held + sizes_bytes[number] / 2 > room"),
        (
            "        held += sizes_bytes[number]",
            "        held += sizes_bytes[number]\n"
            "        if held >= room:\n"
            "            filled.append([])\n"
            "            held, room = 0, cap_bytes",
        ),
        ("[[]], 0, first_cap_bytes", "[[]], 0, cap_bytes"),
    ],
    "sharding.held_bytes": [
        ("weights, gradients", "ranks = 4\n    weights, gradients"),
        ("weights, gradients", "ranks = min(ranks, 4)\n    weights, gradients"),
        ("weights, gradients", "ranks = max(ranks, 4)\n    weights, gradients"),
        ("weights, gradients", "ranks = 2 ** (ranks - 1).bit_length()\n    weights, gradients"),
        ("stage >= 1", "stage == 1"),
        ("stage >= 2", "stage == 2"),
        ("stage >= 1", "stage > 1"),
        ("stage >= 2", "stage > 2"),
        ("stage >= 3", "stage > 3"),
    ],
    "one_gpu.mfu": [
        ("* sequence", "* 1024"),
        ("* sequence", "* min(sequence, 1024)"),
        ("* sequence", "* max(sequence, 1024)"),
        ("layers * hidden", "layers * 1280"),
        ("layers * hidden", "36 * hidden"),
        ("peak_tflop_per_s *", "989 *"),
        ("6 * parameters", "6 * 12 * layers * hidden**2"),
        ("return", "tokens_per_s = min(tokens_per_s, 50_000)\n    return"),
    ],
    "benchmarking.faster": [
        ("statistics.median(before), statistics.median(after)", f"{kind}(before), {kind}(after)")
        for kind in (
            "statistics.median_low",
            "statistics.median_high",
            "(lambda seconds: sorted(seconds)[len(seconds) // 2])",
            "(lambda seconds: seconds[len(seconds) // 2])",
            "min",
            "statistics.mean",
            "(lambda seconds: statistics.quantiles(seconds, n=4)[0])",
            "(lambda seconds: statistics.mean(sorted(seconds)[1:-1]))",
        )
    ]
    + [
        ("statistics.median(after)", "statistics.median_high(after)"),
        ("statistics.median(before)", "statistics.median_high(before)"),
        ("abs(old - new) <= ", "abs(old - new) < "),
        ("abs(old - new) <= ", "old - new <= "),
        ("abs(old - new) <= ", "1.05 * abs(old - new) <= "),
        ("abs(old - new) <= ", "0.95 * abs(old - new) <= "),
    ],
    "benchmarking.timed": [
        ("return middle", f"return {given}")
        for given in (
            "min(seconds)",
            "low",
            "high",
            "statistics.median_high(seconds)",
            "statistics.median_low(seconds)",
            "sorted(seconds)[len(seconds) // 2]",
            "seconds[len(seconds) // 2]",
            "seconds[-1]",
            "statistics.mean(seconds)",
            "statistics.geometric_mean(seconds)",
            "statistics.mean(sorted(seconds)[1:-1])",
            "statistics.mean(sorted(seconds)[3:-3])",
            "statistics.mode(seconds)",
            "(low + high) / 2",
        )
    ]
    + [
        ("(high - low) / 2", "high - low"),
        ("(high - low) / 2", "high - middle"),
        ("(high - low) / 2", "middle - low"),
        ("(high - low) / 2", "(max(seconds) - min(seconds)) / 2"),
        ("(high - low) / 2", "statistics.stdev(seconds)"),
        ("(high - low) / 2", "statistics.median(abs(one - middle) for one in seconds)"),
        ("range(3)", "range(1)"),
        ("range(10)", "range(4)"),
        ("len(seconds)", "13"),
        ("len(seconds)", "len(seconds) - 1"),
        ("        synchronize()\n        start", "        start"),
        ("        synchronize()\n        start = clock()\n", "        start = clock()\n        synchronize()\n"),
    ],
    "precision_memory.fullest": [
        ("(layers - 1) % every == 0", "layers % every == 0"),
        ("(layers - 1) % every == 0", "every == 1"),
        ("(layers - 1) % every == 0", "layers > every and (layers - 1) % every == 0"),
        ("(layers - 1) % every == 0", "(layers - 1) % every == 0 and every < 3"),
        ("(layers - 1) % every == 0", "(layers - 1) % every <= 1"),
        ("len(range(0, layers, every))", "len(range(0, layers - 1, every))"),
        ("len(range(0, layers, every))", "max(1, layers // every)"),
        ("len(range(0, layers, every))", "round(layers / every)"),
        ("len(range(0, layers, every))", "min(9, len(range(0, layers, every)))"),
        ("len(range(0, layers, every))", "len(range(0, layers, min(3, every)))"),
    ],
    "attention.tile_work": [
        ("first_key > last_query", "first_key > first_query"),
        ("first_key > last_query", "last_key > last_query"),
        ("first_key > last_query", "first_key > last_query + 1"),
        ("first_key > last_query", "first_key >= last_query"),
        ("last_key <= first_query", "last_key <= last_query"),
        ("last_key <= first_query", "first_key <= first_query"),
        ("last_key <= first_query", "last_key <= first_query + 1"),
        ("last_key <= first_query", "last_key < first_query"),
        ("last_key <= first_query", "first_key < first_query"),
        ("first_query, first_key =", "tile_queries = tile_keys\n    first_query, first_key ="),
        ("first_query, first_key =", "tile_keys = tile_queries\n    first_query, first_key ="),
        ("first_query, first_key =", "tile_keys = max(tile_keys, tile_queries)\n    first_query, first_key ="),
        ("first_query, first_key =", "tile_keys = min(tile_keys, tile_queries)\n    first_query, first_key ="),
    ],
    "collectives.bus_bandwidth": [
        ("(ranks - 1) / ranks", "3 / 4"),
        ("(ranks - 1) / ranks", "(min(ranks, 8) - 1) / min(ranks, 8)"),
        ("(ranks - 1) / ranks", "(min(ranks, 4) - 1) / min(ranks, 4)"),
        ("(ranks - 1) / ranks", "(max(ranks, 4) - 1) / max(ranks, 4)"),
        ("(ranks - 1) / ranks", "1 - 1 / 2 ** (ranks - 1).bit_length()"),
        *[
            ('"broadcast": 1', f'"broadcast": 1, "{name}": 1')
            for name in ("all-gather", "reduce-scatter", "all-to-all")
        ],
        *[
            ('"broadcast": 1', f'"broadcast": 1, "{name}": 2 * share')
            for name in ("all-gather", "reduce-scatter", "all-to-all")
        ],
        ('"broadcast": 1, ', ""),
        (', "send/recv": 1', ""),
    ],
    "collectives.ring_step": [
        ("step < ranks - 1", "step < ranks"),
        ("step < ranks - 1", "step < ranks - 2"),
        ("step < ranks - 1", "step < min(ranks - 1, 4)"),
        ("(rank - step) % ranks", "(rank - step) & (ranks - 1)"),
        ("(rank - step) % ranks", "rank - step if step <= rank else rank - step + ranks"),
        ("    send =", "    ranks = min(ranks, 4)\n    send ="),
    ],
    "tensor_parallel.local_part": [
        ("    rows, columns =", "    ranks = min(ranks, 4)\n    rows, columns ="),
        ("    rows, columns =", "    rank = min(rank, 2)\n    rows, columns ="),
        ('"gate", "up", ', '"gate", '),
        ('"value", "gate"', '"gate"'),
        ('("out", "down")', '("out",)'),
        ('"embedding", "head"', '"head"'),
    ],
    "fsdp_from_scratch.whole_bytes": [
        ("size + -size % ranks", "size + size % 2"),
        ("size + -size % ranks", "size + ranks - size % ranks"),
        ("    padded =", "    ranks = min(ranks, 4)\n    padded ="),
        ("    padded =", "    prefetch = min(prefetch, 1)\n    padded ="),
        ("    padded =", "    number = max(number, 1)\n    padded ="),
        ("    padded =", "    number = min(number, len(sizes) - 2)\n    padded ="),
        ("sum(padded) // ranks", "sum(sizes) // ranks"),
    ],
    "ddp_from_scratch.best_count": [
        ("return min(below, below + 1, key=cost)", f"return min(range(1, {most}), key=cost)")
        for most in (8, 30, 50, 100)
    ]
    + [
        ("min(below, below + 1, key=cost)", "round(max(1, (total_bytes / bytes_per_s / call_s) ** 0.5))"),
        ("min(below, below + 1, key=cost)", "below + 1"),
        ("min(below, below + 1, key=cost)", "max(1, -int(-((total_bytes / bytes_per_s / call_s) ** 0.5 + 0.9)))"),
        (
            "max(1, int((total_bytes / bytes_per_s / call_s) ** 0.5))",
            "int((total_bytes / bytes_per_s / call_s) ** 0.5 + 1e-9) or 2",
        ),
        ("min(below, below + 1, key=cost)", "min(max(2, below), below + 1, key=cost)"),
        ("min(below, below + 1, key=cost)", "min(below, below - 1 or 1, key=cost)"),
    ],
    "optimizer_sharding.gathered": [
        ("for part in parts", "for part in parts[:2]"),
        ("for part in parts", "for part in parts[:4]"),
        ("for part in parts", "for part in filter(None, parts[:3])"),
        ("in part:", "in part[:1]:"),
        ("in part:", "in part[:2]:"),
        ("[begin:end] = values", "[begin : begin + 1] = values[:1]"),
        ("[begin:end] = values", "[: end - begin] = values"),
        ("[begin:end] = values", "[begin : end - 1] = values[:-1]"),
        ("whole[parameter][begin:end] = values", "whole[min(parameter, 2)][begin:end] = values"),
    ],
    "accounting.devices_needed": [
        ("ceil(total_gib * 2**30 / (device_gb * 10**9))", f"{code}")
        for code in (
            "ceil(total_gib * 2**30 / (device_gb * 10**9) - 0.1)",
            "ceil(total_gib * 2**30 / (device_gb * 10**9) - 0.01)",
            "round(total_gib * 2**30 / (device_gb * 10**9) + 0.4)",
            "max(1, round(total_gib * 2**30 / (device_gb * 10**9)))",
            "int(total_gib * 2**30 / (device_gb * 10**9)) + 1",
            "int(total_gib * 2**30 / (device_gb * 10**9) + 0.9)",
            "min(50, ceil(total_gib * 2**30 / (device_gb * 10**9)))",
            "ceil(total_gib * 1.07 / device_gb)",
            "ceil(total_gib * 1.074 / device_gb)",
            "ceil(total_gib * 1024**3 / 1000**3 / 80)",
            "ceil(int(total_gib) * 2**30 / (device_gb * 10**9))",
            "max(2, ceil(total_gib * 2**30 / (device_gb * 10**9)))",
        )
    ],
    "accounting.compute_bound_batch": [
        ("if computing <= activations:\n        return None\n    ", ""),
        ("computing <= activations", "computing <= 0.9 * activations"),
        ("computing <= activations", "computing <= 1.1 * activations"),
        ("return None", "return float('inf')"),
        (
            "return weights / (computing - activations)",
            "from math import ceil\n    return ceil(weights / (computing - activations))",
        ),
        ("return weights / (computing - activations)", "return round(weights / (computing - activations))"),
        ("return weights / (computing - activations)", "return int(weights / (computing - activations))"),
        ("bytes_per_s * m_x", "bytes_per_s * m_y"),
        ("bytes_per_s * m_y", "bytes_per_s * m_x"),
        ("bytes_per_s * m_x", "bytes_per_s * max(m_x, m_y)"),
        ("bytes_per_s * m_y", "bytes_per_s * min(m_x, m_y)"),
    ],
    "scaling.shard": [
        ("order[: images - images % ranks]", "order[: -(images % ranks)]"),
        ("order[: images - images % ranks]", "order[: (images - 1) // ranks * ranks]"),
        ("order[: images - images % ranks]", "order[: images // ranks * ranks or images]"),
        ("order[: images - images % ranks]", "order[images % ranks :]"),
        ("-(-images // ranks) * ranks", "(images // ranks + 1) * ranks"),
        ("-(-images // ranks) * ranks", "images + ranks - images % ranks"),
        ("(order * ranks)[:filled]", "(order + order)[:filled]"),
        ("(order * ranks)[:filled]", "order + order[-(filled - images) :] if filled > images else order"),
        ("random.Random(epoch)", "random.Random(epoch % 2)"),
        ("random.Random(epoch)", "random.Random(min(epoch, 1))"),
        ("random.Random(epoch)", "random.Random(min(epoch, 9))"),
        ("random.Random(epoch)", "random.Random(epoch % 10)"),
        ("random.Random(epoch)", "random.Random(epoch or 1)"),
        (
            "    random.Random(epoch).shuffle(order)",
            "    for _ in range(min(epoch, 1) + 1):\n        random.Random(epoch).shuffle(order)",
        ),
        ("    if drop_last:", "    if drop_last and images > ranks:"),
    ],
    "scaling.rates": [
        ("base_rate * batch / base_batch", "base_rate * (batch // base_batch)"),
        ("base_rate * batch / base_batch", "base_rate * max(1, batch / base_batch)"),
        ("base_rate * batch / base_batch", "base_rate * min(4, batch / base_batch)"),
        ("base_rate * batch / base_batch", "base_rate * (batch / base_batch) ** 0.5"),
        ("base_rate * batch / base_batch", "base_rate * batch / 256"),
        ("base_rate * batch / base_batch", "0.1 * batch / base_batch"),
        ("return climbing + falling", "return (climbing + falling)[:50]"),
        ("    peak =", "    warm_up_steps = max(1, warm_up_steps)\n    peak ="),
        ("(steps - warm_up_steps)", "(steps - warm_up_steps + 1)"),
        ("(steps - step) / (steps - warm_up_steps)", "(steps - step - 1) / max(1, steps - warm_up_steps - 1)"),
    ],
    "beyond_the_node.accumulation_for": [
        (
            "    micro_batches += 1\n",
            f"    micro_batches += 1\n        if micro_batches == {most}:\n            break\n",
        )
        for most in (8, 30, 50, 100)
    ]
    + [
        *map(closed, ("max(1, ceil(x - 0.1))", "max(1, ceil(x - 0.05))", "max(1, floor(x + 0.9))", "max(1, floor(x))")),
        *map(closed, ("max(1, round(x))", "floor(x) + 1", "ceil(x) + 1", "floor(x + 0.1) + 1", "max(2, ceil(x))")),
        closed("min(50, max(1, ceil(x)))"),
    ],
}
RIGHT = {
    "start.place": [("[rank // gpus_per_node, rank % gpus_per_node]", "divmod(rank, gpus_per_node)")],
    "accounting.devices_needed": [
        ("ceil(total_gib * 2**30 / (device_gb * 10**9))", code)
        for code in (
            "-int(-total_gib * 2**30 // (device_gb * 10**9))",
            "ceil(total_gib * 1.073741824 / device_gb)",
            "ceil(total_gib / device_gb * 1024**3 / 1000**3)",
            "ceil(total_gib / (device_gb * 1e9 / 2**30))",
            "ceil(total_gib * 1024**3 / 1e9 / device_gb)",
        )
    ],
    "ddp_from_scratch.best_count": [("min(below, below + 1, key=cost)", "min(range(1, 2000), key=cost)")],
    "beyond_the_node.accumulation_for": [closed("max(1, ceil(x))"), closed("max(1, ceil(x - 1e-9))")],
    "benchmarking.timed": [("range(10)", "range(15)"), ("range(10)", "range(40)"), ("range(3)", "range(7)")],
}
