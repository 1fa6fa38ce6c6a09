"""The suspects of lab 08 as code, shortened: the right program, and what each bug changes in it."""

from labkit.course.lineup import edited

_RIGHT = """
def forward(q, K, V):  # one tile of queries
    m, l, o = -inf, 0, 0
    for k, v in tiles(K, V):
        if first(k) > last(q):
            break
        s = q @ k.T * scale
        if last(k) > first(q):
            s = where(keys(k) <= queries(q), s, -inf)
        m_new = max(m, s.max())
        p = exp(s - m_new)
        l = exp(m - m_new) * l + p.sum()
        o = exp(m - m_new) * o + p @ v
        m = m_new
    return o / l, m + log(l)

def backward(q, K, V, dO, D, L):
    for k, v in tiles(K, V):
        p = exp(q @ k.T * scale - L)
        ds = p * (dO @ v.T - D) * scale
        yield ds @ k, ds.T @ q, p.T @ dO
"""
CODES = edited(
    _RIGHT,
    {
        "no_diagonal_mask": [
            ("        if last(k) > first(q):\n            s = where(keys(k) <= queries(q), s, -inf)\n", "")
        ],
        "not_rescaled": [("exp(m - m_new) * l + p.sum()", "l + p.sum()"), ("exp(m - m_new) * o + p @ v", "o + p @ v")],
        "square_backward": [
            (
                "def backward(q, K, V, dO, D, L):\n    for k, v in tiles(K, V):\n",
                "def backward(Q, K, V, dO, D, L):\n    for q, k, v in [(Q, K, V)]:\n",
            )
        ],
    },
)
