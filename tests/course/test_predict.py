"""Predictions: what the reader typed, what is shown, and nothing missing where nobody typed."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from labkit.course import predict


@pytest.mark.parametrize(
    "text, value",
    [("3", 3.0), (" 2.5 ", 2.5), ("2,5", 2.5), ("1e-3", 0.001), ("-4", -4.0), ("0", 0.0), ("", None), ("  ", None)],
)
def test_what_the_reader_typed_is_taken(text, value):
    guess = predict("How long?", unit="s")
    said = guess.take(text)
    assert guess.value == value
    assert said == ("" if value is None else f"noted, {value:g} s: it will stand on the charts below")


@pytest.mark.parametrize("text", ["three", "1,234.5", "nan", "inf", "-Infinity", "3 s", "0x10"])
def test_what_is_no_number_is_told(text):
    guess = predict("How long?", unit="s")
    guess.take("7")
    assert guess.take(text) == "that is no number"
    assert guess.value is None


def test_a_skipped_prediction_says_so():
    guess = predict("How long?", unit="s")
    assert guess.value is None
    assert repr(guess) == "Predict. How long? [s]: skipped"
    guess.take("12,5")
    assert repr(guess) == "Predict. How long? [s]: 12.5"


def test_the_field_is_shown_with_a_text_for_where_there_is_none():
    InteractiveShell.instance()
    guess = predict("How long?", unit="s")
    with capture_output() as shown:
        guess._ipython_display_()
    (output,) = shown.outputs
    assert output.data["text/plain"] == "Predict. How long? [s]: skipped"
    assert "application/vnd.jupyter.widget-view+json" in output.data
    InteractiveShell.clear_instance()


def test_typing_into_the_field_sets_the_value():
    import ipywidgets
    from ipywidgets.widgets.widget import _instances

    InteractiveShell.instance()
    guess = predict("How long?", unit="s")
    before = set(_instances)
    with capture_output():
        guess._ipython_display_()
    new = [widget for key, widget in _instances.items() if key not in before]
    (field,) = [widget for widget in new if isinstance(widget, ipywidgets.Text)]
    field.value = "4,5"
    assert guess.value == 4.5
    assert any("noted, 4.5 s" in widget.value for widget in new if isinstance(widget, ipywidgets.HTML))
    InteractiveShell.clear_instance()
