"""Slips in the reference solutions. Per exercise: text to replace, its replacement, the kind of fault that it is."""

from pathlib import Path

from labkit.course import answers

SLIPS = {
    "start.place": [
        ("[rank // gpus_per_node, rank % gpus_per_node]", "[rank % gpus_per_node, rank // gpus_per_node]", "swapped"),
        ("rank // gpus_per_node", "rank / gpus_per_node", "fraction"),
        ("rank % gpus_per_node", "rank", "global_rank"),
        ("[rank // gpus_per_node, rank % gpus_per_node]", "rank % gpus_per_node", "form"),
        ("rank % gpus_per_node", "rank // gpus_per_node", "wrong"),
    ],
    "start.first_cause": [
        ("min(errors, key=lambda report: report[1])", "errors[0]", "latest"),
        ('"connection" not in report[2]', "True", "earliest"),
        ("if errors:", "if len(reports) == ranks:", "silent_first"),
        ("min(errors", "max(errors", "latest"),
        ("if errors:", "if reports:\n        return reports[0][0]\n    if errors:", "first_listed"),
    ],
    "topology.slowest_hop": [
        ("for i in range(len(ring))", "for i in range(1, len(ring))", "open_ring"),
        ("-int(path[2:])", "0", "links_ignored"),
        ("max(hops, key=slowness)", "min(hops, key=slowness)", "fastest"),
        ("max(hops, key=slowness)", "max(hops)", "alphabet"),
        ('["PIX", "PXB", "PHB", "NODE", "SYS"]', '["PIX", "PHB", "PXB", "NODE", "SYS"]', "wrong"),
        ('["PIX", "PXB", "PHB", "NODE", "SYS"]', '["PIX", "PXB", "PHB", "SYS", "NODE"]', "wrong"),
        ('["PIX", "PXB", "PHB", "NODE", "SYS"]', '["NODE", "PIX", "PXB", "PHB", "SYS"]', "wrong"),
        ("return 0, -int(path[2:])", "return 2, 0", "wrong"),
    ],
    "topology.best_ring": [
        ("for i in range(count))", "for i in range(1, count))", "slow"),
        ("return min(gb_per_s", "return sum(gb_per_s", "slow"),
        ("best = max(", "best = min(", "slow"),
        ("permutations(range(len(gb_per_s)), count)", "permutations(range(count))", "slow"),
        ("key=slowest", "key=lambda order: 0", "slow"),
        ("numa[gpu]) for gpu", "0) for gpu", "far"),
        ("numa[gpu]) for gpu in best", "numa[place]) for place, gpu in enumerate(best)", "far"),
        ("[(gpu, numa[gpu]) for gpu in best]", "list(best)", "form"),
        ("for gpu in best]", "for gpu in best + best[:1]]", "count"),
        ("for gpu in best]", "for gpu in best[:-1] + best[:1]]", "twice"),
    ],
    "pipeline.one_f_one_b": [
        ("min(ranks - 1 - rank, micro_batches)", "0", "slow"),
        ("min(ranks - 1 - rank, micro_batches)", "micro_batches", "memory"),
        ('f"B{number - ahead}"', 'f"B{number}"', "incomplete"),
        ("min(ranks - 1 - rank, micro_batches)", "ranks - 1 - rank", "form"),
        ('return steps + [f"B{number}" for', 'return steps + [f"b{number}" for', "form"),
    ],
    "pipeline.balanced_split": [
        ("return best[len(times)][1]", "return [len(times) // stages] * stages", "balance"),
        ("best[len(times)][1]", "best[len(times)]", "form"),
        ("for _ in range(stages)", "for _ in range(max(1, stages - 1))", "sum"),
    ],
    "ddp_fsdp.sent_bytes": [
        ("(ranks - 1) / ranks * ", "", "whole"),
        (" * 4 *", " *", "numbers"),
        (" * 4 *", " * 2 *", "half_precision"),
        (" * 4 *", " * 8 *", "double_precision"),
        ('"ddp": 2', '"ddp": 1', "one_pass"),
        ('"fsdp_full": 3', '"fsdp_full": 2', "gathered_once"),
        ('"fsdp_grad": 2', '"fsdp_grad": 1', "no_gather"),
        ("(ranks - 1) / ranks", "(ranks - 1)", "together"),
    ],
    "ddp_fsdp.buckets": [
        ("reversed(range(len(sizes_bytes)))", "range(len(sizes_bytes))", "order"),
        ("held, room = 0, cap_bytes", "held = 0", "early"),
        ("held >= room", "held + sizes_bytes[number] > room", "early"),
        ("held >= room", "held > room", "late"),
    ],
    "sharding.held_bytes": [
        ("stage >= 1", "stage >= 2", "stage"),
        ("8 * parameters", "4 * parameters", "one_state"),
        ("weights + gradients + states", "(weights + gradients + states) / 4", "numbers"),
        ("weights + gradients + states", "(weights + gradients + states) / 2", "half_precision"),
        ("weights + gradients + states", "(weights + gradients + states) * 2", "double_precision"),
        ("stage >= 3", "stage >= 2", "ahead"),
    ],
    "one_gpu.mfu": [
        ("return tokens_per_s", "return 100 * tokens_per_s", "percent"),
        ("6 * parameters + 12 *", "2 * parameters + 4 *", "forward_alone"),
        (" + 12 * layers * hidden * sequence", "", "no_attention"),
        ("12 * layers", "4 * layers", "attention_forward"),
        (" * 1e12", "", "tera"),
        (
            "tokens_per_s * flop / (peak_tflop_per_s * 1e12)",
            "peak_tflop_per_s * 1e12 / (tokens_per_s * flop)",
            "upside_down",
        ),
        ("12 * layers", "6 * layers", "wrong"),
    ],
    "benchmarking.faster": [
        ("<= half_range(before) + half_range(after)", "< 0", "noise"),
        ("old / new", "new / old", "upside_down"),
        (
            "statistics.median(before), statistics.median(after)",
            "statistics.mean(before), statistics.mean(after)",
            "mean",
        ),
        ("(high - low) / 2", "high - low", "whole_range"),
        (', method="inclusive"', "", "other_quartiles"),
        ("return (high - low) / 2", "return statistics.stdev(seconds)", "deviation"),
    ],
    "precision_memory.fullest": [
        ("(kept - entry if last_is_computed_again else 0)", "0", "no_second_forward"),
        ("last_is_computed_again else", "True else", "nothing_freed"),
        ("kept - entry if", "kept if", "input_twice"),
        ("len(range(0, layers, every))", "layers - len(range(0, layers, every))", "others_checkpointed"),
        ("len(range(0, layers, every))", "layers // every", "rounded_down"),
        ("return held + (kept - entry if last_is_computed_again else 0)", "return held + kept * checkpointed", "wrong"),
        (
            "return held + (kept - entry if last_is_computed_again else 0)",
            "return layers * kept",
            "nothing_checkpointed",
        ),
        ("return held", "return [held]\n    return held", "form"),
    ],
    "attention.tile_work": [
        ("row * tile_queries, column * tile_keys", "row * tile_keys, column * tile_queries", "swapped_sizes"),
        ("last_key <= first_query", "last_key < first_query", "own_key"),
        ("first_key > last_query", "first_key >= last_query", "diagonal_skipped"),
        ('return "mask"', 'return "full"', "diagonal_full"),
        ('return "mask"', 'return "skip"', "diagonal_skipped"),
        ("- 1, first_key + tile_keys - 1", ", first_key + tile_keys", "end_too_far"),
    ],
    "collectives.bus_bandwidth": [
        ("factor * message_bytes", "message_bytes", "algorithm"),
        (".get(collective, share)", '["all-reduce"]', "one_factor"),
        ("2 * share", "share", "half"),
        ("1e9", "2**30", "binary"),
        (" / 1e9", "", "bytes"),
        ('"broadcast": 1, "send/recv": 1', "", "shared"),
    ],
    "collectives.ring_step": [
        ("rank - step", "rank + step", "overwritten"),
        ("step < ranks - 1", "True", "twice"),
        ("(send - 1) % ranks", "send", "mismatch"),
        ("(rank - step) % ranks", "rank - step", "range"),
    ],
    "tensor_parallel.local_part": [
        ('("query", "key", "value", "gate", "up", "embedding", "head")', '("out", "down")', "transposed"),
        ('elif layer in ("out", "down")', "elif False", "whole"),
        ("rows = [rank * outputs // ranks, ", "rows = [0, ", "wrong"),
        (', "embedding", "head")', ")", "words_whole"),
        ("(rank + 1) * outputs // ranks", "outputs // ranks", "sizes"),
    ],
    "fsdp_from_scratch.whole_bytes": [
        ("[size + -size % ranks for size in sizes]", "sizes", "unpadded"),
        ("number + prefetch + 1", "number + 1", "no_prefetch"),
        ("2 * gathered", "4 * gathered", "all_float32"),
        ("4 * shards + ", "", "no_shards"),
        ("4 * shards", "4 * (sum(padded) - gathered) // ranks", "no_shard_beside"),
        ("padded[number : number + prefetch + 1]", "padded", "all_whole"),
        ("[number : number +", "[max(0, number - prefetch) : number +", "both_sides"),
        ("4 * shards", "2 * shards", "wrong"),
    ],
    "ddp_from_scratch.best_count": [
        ("min(below, below + 1, key=cost)", "below", "rounded_down"),
        ("min(below, below + 1, key=cost)", "round((total_bytes / bytes_per_s / call_s) ** 0.5)", "none"),
        ("min(below, below + 1, key=cost)", "(total_bytes * bytes_per_s * call_s) ** 0.5", "bytes"),
        ("min(below, below + 1, key=cost)", "(total_bytes / bytes_per_s / call_s) ** 0.5", "unrounded"),
    ],
    "optimizer_sharding.gathered": [
        ("for part in parts", "for part in parts[:1]", "own_part"),
        ("whole[parameter][begin:end] = values", "whole[parameter] += values", "wrong"),
        ("return whole", "return sum(whole, [])", "flat"),
        ("return whole", "return [[value for piece in part for value in piece[3]] for part in parts]", "per_rank"),
    ],
    "accounting.devices_needed": [
        ("2**30", "10**9", "mixed"),
        ("ceil(", "int(", "rounded_down"),
        ("ceil(", "float(", "unrounded"),
    ],
    "accounting.compute_bound_batch": [
        ("(y * bytes_per_s * m_x)", "(y * bytes_per_s)", "no_m_x"),
        ("computing - activations)", "computing + activations)", "added"),
        ("return None", "return 0", "never"),
    ],
    "scaling.shard": [
        ("random.Random(epoch)", "random.Random(0)", "reshuffle"),
        ("random.Random(epoch)", "random.Random(rank)", "coverage"),
        ("order = (order * ranks)[:filled]", "pass", "uneven"),
        ("order[rank::ranks]", "order", "count"),
        ("order[rank::ranks]", "order[::ranks]", "coverage"),
        ("if drop_last", "if True", "count"),
        ("order[rank::ranks]", "sorted(order[rank::ranks])", "order"),
    ],
    "scaling.rates": [
        ("base_rate * batch / base_batch", "base_rate", "peak"),
        ("(step + 1)", "step", "warm_up"),
        ("(steps - step)", "(steps - step - 1)", "decay"),
    ],
    "beyond_the_node.accumulation_for": [
        ("< efficiency", "<= efficiency", "one_more"),
        ("return micro_batches", "return micro_batches - 1", "rounded_down"),
        ("< efficiency", "< 1 - efficiency", "complement"),
        ("/ (micro_batches * compute_s + communication_s)", "/ communication_s", "ratio"),
    ],
}


def solution(name: str) -> str:
    """Return the module that holds the reference solution of an exercise, as text."""
    lesson = Path(answers.__file__).parents[2] / "notebooks" / "lessons" / name.partition(".")[0]
    return (lesson / "solutions.py").read_text(encoding="utf-8")


def slipped(name: str, old: str, new: str) -> str:
    """Return the module that holds the reference solution, with a text replaced in that function alone."""
    function = name.partition(".")[2]
    before, start, after = solution(name).partition(f"def {function}(")
    body, border, rest = after.partition("\n\n\ndef ")
    assert old in body
    return before + start + body.replace(old, new) + border + rest
