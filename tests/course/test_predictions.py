"""Predictions: what the reader typed, what is shown, and nothing missing where nobody typed."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import labkit
from labkit.course import predict
from labkit.course.record import FILE
from labkit.repository import REPOSITORY

pytestmark = pytest.mark.usefixtures("answers_folder")


WRITTEN = [("65 536", 65536.0), ("1\u202f589,5", 1589.5), ("", None)]  # as the workbook's own pages write them


@pytest.mark.parametrize(
    "text, value",
    [("3", 3.0), (" 2.5 ", 2.5), ("2,5", 2.5), ("1e-3", 0.001), ("-4", -4.0), ("0", 0.0), ("  ", None), *WRITTEN],
)
def test_what_the_reader_typed_is_taken(text, value):
    guess = predict("How long?", unit="s")
    said = guess.take(text)
    assert guess.value == value
    assert said == ("" if value is None else f"noted, {value:g} s: it comes back beside the result")


@pytest.mark.parametrize("text", ["65,536", "1,234.5", "-1,000,000"])
def test_a_comma_before_three_digits_may_be_one_of_thousands(text):
    guess = predict("How long?", unit="s")
    assert "in two ways" in guess.take(text) and guess.value is None


@pytest.mark.parametrize(("text", "shown"), [("0,125", "0.125"), ("1234567", "1234567"), ("12345,678", "12345.678")])
def test_all_digits_that_were_typed_are_shown(text, shown):
    guess = predict("How long?", unit="s")
    assert guess.take(text).startswith(f"noted, {shown} s") and repr(guess).endswith(shown)


@pytest.mark.parametrize("text", ["three", "nan", "inf", "-Infinity", "3 s", "0x10"])
def test_what_is_no_number_is_told(text):
    guess = predict("How long?", unit="s")
    guess.take("7")
    assert guess.take(text) == "that is no number such as 1589.5; 7 stays noted"
    assert guess.value == predict("How long?", unit="s").value == 7, "here, and after a restart of the kernel"


def test_typing_into_the_field_sets_the_value_and_a_text_is_there_for_where_there_is_none():
    import ipywidgets
    from ipywidgets.widgets.widget import _instances

    InteractiveShell.instance()
    guess = predict("How long?", unit="s")
    before = set(_instances)
    with capture_output() as shown:
        guess._ipython_display_()
    (output,) = shown.outputs
    assert output.data["text/plain"] == "Predict. How long? [s]: skipped"
    new = [widget for key, widget in _instances.items() if key not in before]
    (field,) = [widget for widget in new if isinstance(widget, ipywidgets.Text)]
    field.value = "4,5"
    assert guess.value == 4.5
    assert any("noted, 4.5 s" in widget.value for widget in new if isinstance(widget, ipywidgets.HTML))
    InteractiveShell.clear_instance()


ANOTHER_KERNEL = "from labkit import predict; print(predict('How long?', unit='s').value)"


def test_another_kernel_finds_the_prediction_again():
    predict("How long?", unit="s").take("0,5")
    predict("How long?", unit="ms").take("9")
    command = [sys.executable, "-c", ANOTHER_KERNEL]
    again = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert again.stdout.strip() == "0.5"
    assert repr(predict("How long?", unit="s")) == "Predict. How long? [s]: 0.5"
    predict("How long?", unit="s").take("")
    assert predict("How long?", unit="s").value is None
    assert predict("How long?", unit="ms").value == 9


@pytest.mark.parametrize(
    "guessed, measured, unit, error",
    [
        ("0.05", 0.022, "s", "too slow by a factor of 2.3"),
        ("0.01", 0.022, "s", "too fast by a factor of 2.2"),
        ("300", 100, "GB/s", "too high by a factor of 3"),
        ("50", 100, "GB/s", "too low by a factor of 2"),
        ("102", 100, "GB/s", "right within 5 %"),
        ("0", 0, "MiB", "right within 5 %"),
        ("-1", 2, "MiB", "too low by 3 MiB"),
        ("0", 2, "MiB", "too low by 2 MiB"),
        ("40", 20, "%", "too high by 20 percentage points"),
        ("10", 4249, "×", "too low by a factor of 425"),
        ("20", 20500, "ms", "too fast by a factor of 1 025"),
    ],
)
def test_a_guess_comes_back_with_its_error_and_direction(guessed, measured, unit, error):
    guess = predict("How much?", unit=unit)
    guess.take(guessed)
    assert error in guess.compare(measured).data
    (row,) = labkit.predictions().to_dict("records")
    assert (row["guessed"], row["measured"], row["error"]) == (float(guessed), measured, error)


@pytest.mark.parametrize(
    ("guessed", "measured", "asked"), [("0.02", 20.5, True), ("3", 20.5, False), ("-1", 500, False)]
)
def test_a_guess_that_may_be_in_another_unit_is_asked_for_it(guessed, measured, asked):
    guess = predict("How much?", unit="ms")
    guess.take(guessed)
    assert ("Was your number one in ms?" in guess.compare(measured).data) == asked


def test_without_a_prediction_only_what_was_measured_is_told(answers_folder):
    guess = predict("How long?", unit="s")
    assert "0.022 s" in guess.compare(0.022).data and "guessed" not in guess.compare(0.022).data
    assert labkit.predictions().empty
    guess.take("1")
    for nothing in (None, math.nan):
        assert "Nothing was measured" in guess.compare(nothing).data
    assert not answers_folder.exists() or labkit.predictions()["error"].tolist() == ["not measured yet"]


def test_a_value_that_was_computed_is_not_called_measured():
    guess = predict("How many?", unit="GPUs")
    assert "Computed: 44 GPUs" in guess.compare(44, how="computed").data
    guess.take("40")
    for _ in range(2):  # as where all cells run again
        assert "computed 44 GPUs: too low" in guess.compare(44, how="computed").data
    assert labkit.predictions()["guessed"].tolist() == [40.0]


@pytest.mark.parametrize("text", ["", "{", "7", '{"predictions": 1}', '[1, {"question": "?"}]', "[" * 9000])
@pytest.mark.parametrize("file", [FILE, "predictions.json"])
def test_a_damaged_file_costs_no_notebook(answers_folder, file, text):
    answers_folder.mkdir()
    (answers_folder / file).write_text(text)
    guess = predict("How long?", unit="s")
    assert guess.value is None
    guess.take("3")
    assert predict("How long?", unit="s").value == 3


def test_a_folder_that_cannot_be_written_is_told(answers_folder):
    answers_folder.write_text("a file is in the way")
    guess = predict("How long?", unit="s")
    assert "until this kernel ends" in guess.take("3")
    assert guess.value == 3
    assert "You guessed 3 s" in guess.compare(1).data


def test_many_kernels_write_at_the_same_time(answers_folder):
    def guess(number: int) -> None:
        predict(f"Question {number}?", unit="s").take(str(number))

    with ThreadPoolExecutor(8) as pool:
        [*pool.map(guess, range(24))]
    assert sorted(labkit.predictions()["guessed"]) == [*range(24)]
    assert os.listdir(answers_folder) == [FILE], "no draft is left"
