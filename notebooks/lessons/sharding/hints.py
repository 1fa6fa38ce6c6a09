"""Hints for the exercises of lab 05: where to look, what the structure is, almost the code."""

HINTS = {
    "held_bytes": (
        "How many bytes per parameter are there without sharding? In float32 each number takes 4.",
        "4 for the parameter, 4 for its gradient, 8 for AdamW's two states. Each stage divides one more of these "
        "by the number of ranks: first states, then gradients, then parameters.",
        "Start with `weights, gradients, states = 4 * parameters, 4 * parameters, 8 * parameters`. `if stage >= "
        "1: states /= ranks`, and so on. Return the sum.",
    ),
    "smallest_stage": (
        "Use your `held_bytes` as a start. What else is in a GPU's memory besides the states?",
        "Go through the stages from 0 to 3. Return the first one whose bytes, with the activations, are at most "
        "the GPU's. No stage shards the activations.",
        "Stage s keeps `16 - sharded[s] + sharded[s] / ranks` bytes per parameter, with `sharded = [0, 8, 12, "
        "16]`. Compare `that * parameters + activation_bytes` with `gpu_bytes`. After the loop, return None.",
    ),
}
