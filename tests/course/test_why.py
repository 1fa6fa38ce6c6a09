"""The question after a prediction: every choice is answered, and the order does not tell which one is right."""

import re

from labkit.course.lineup import lined_up, why

CHOICES = [("more links", "Yes: <4> links."), ("faster links", "Both use them."), ("smaller chunks", "No: as many.")]


def test_every_choice_opens_to_its_answer():
    page = why("Why is it faster?", *CHOICES).data
    opened = re.findall(r"<summary>(.*?)</summary><p[^>]*>(.*?)</p></details>", page)
    assert [choice for choice, _ in opened] == list(lined_up(choice for choice, _ in CHOICES))
    assert dict(opened) == {
        "more links": "✔ Yes: &lt;4&gt; links.",
        "faster links": "✘ Both use them.",
        "smaller chunks": "✘ No: as many.",
    }


def test_the_order_does_not_depend_on_which_is_right():
    orders = {
        tuple(re.findall(r"<summary>(.*?)</summary>", why("Why?", *CHOICES[at:], *CHOICES[:at]).data))
        for at in range(3)
    }
    assert len(orders) == 1
