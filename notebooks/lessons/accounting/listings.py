"""The suspects of lab 12 as code, shortened: the right program, and what each bug changes in it."""

from labkit.course.lineup import edited

_RIGHT = """
def account(parameters, tokens):
    held = {
        "parameters": 4 * parameters,
        "gradients": 4 * parameters,
        "states": 8 * parameters,
        "activations": 2 * kept_numbers(tokens),
    }
    total = sum(held.values())
    devices = ceil(total / (80 * 10**9))
    batch = least_compute_bound_tokens() * 1.25
    return held, devices, batch
"""
CODES = edited(
    _RIGHT,
    {
        "mixed_units": [("ceil(total / (80 * 10**9))", "ceil(total / 2**30 / 80)")],
        "gradients_twice": [('"gradients": 4 *', '"gradients": 8 *')],
        "bits_for_bytes": [("2 * kept_numbers", "16 * kept_numbers")],
        "upside_down": [("least_compute_bound_tokens() * 1.25", "least_compute_bound_tokens() / 1.25")],
    },
)
