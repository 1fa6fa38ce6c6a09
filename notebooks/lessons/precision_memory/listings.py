"""The suspects of lab 07 as code, shortened: the right program, and what each bug changes in it."""

from labkit.course.lineup import edited

_RIGHT = """
def step():
    for tokens, targets in micro_batches:
        with autocast("cuda", dtype=bfloat16):
            loss = model(tokens, targets) / count
            metrics.append(entropy(logits).item())
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
CODES = edited(
    _RIGHT,
    {
        "list_of_losses": [
            ("def step():\n", "def step():\n    losses = []\n"),
            ("        loss.backward()\n", "        losses.append(loss)\n    torch.stack(losses).sum().backward()\n"),
        ],
        "kept_by_hook": [
            (
                "def step():\n",
                "def see(module, inputs, output):\n    seen.append(output)\n\nfor block in model.blocks:\n"
                "    block.register_forward_hook(see)\n\ndef step():\n",
            )
        ],
        "autocast_around_backward": [("        loss.backward()", "            loss.backward()")],
        "metric_keeps_graph": [("entropy(logits).item()", "entropy(logits)")],
    },
)
