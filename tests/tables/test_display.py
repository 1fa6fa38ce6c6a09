"""A notebook shows the whole text of every cell of a table."""

import subprocess
import sys

SHOWN = """
import IPython
import labkit
import pandas

table = pandas.DataFrame({"target": ["time of the method with a long name, divided by that of " + "a" * 40]})
print(table._repr_html_())
"""


def test_no_text_of_a_card_is_cut_in_a_notebook():
    shown = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True, check=True).stdout
    assert shown.count("a" * 40) == 1
