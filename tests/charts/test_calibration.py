"""The page of all predictions: drawn with none, one and many of them."""

from __future__ import annotations

import pytest
from figures import checked

import labkit
from labkit.course import predict

QUESTION = "How many seconds does a broadcast of one GiB from rank 0 to all other ranks take on this machine"


@pytest.mark.parametrize("count", [0, 1, 25])
def test_every_measured_prediction_is_a_mark(tmp_path, monkeypatch, count):
    monkeypatch.setenv("LABKIT_ANSWERS", str(tmp_path))
    predict("Never measured?", unit="s").take("3")
    for number in range(count):
        guess = predict(f"{QUESTION}, number {number}?", unit="s")
        guess.take(str(10 ** (number % 4)))
        guess.compare(20)
    figure = checked(labkit.predictions_chart(labkit.predictions()))
    (ax,) = figure.axes
    marks = [line for line in ax.lines if line.get_label() == "your prediction"]
    assert [len(line.get_xdata()) for line in marks] == ([count] if count else [])
    assert bool(ax.texts) == (count == 0), "an empty chart says why"
