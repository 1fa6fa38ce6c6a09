"""The student's side.

lessons.py        the lessons as their notebooks describe themselves
course_map.py     which lesson builds on which, and how far the student is
copies.py         the student's copies of the notebooks
copied_cells.py   which cell of a copy is which of the workbook's
predictions.py    a number that the reader commits to before measuring
exercises.py      an exercise: cases, judge, grade, hints, reference solution
answers.py        `%%answer lab.function` saves a cell as a file, which workers import, and runs it
answer_launch.py  launches an answer
syntax.py         what its text tells before it runs
judging.py        compares what it returns, and names the mistake behind it
verdict.py        what a check found, in words
record.py         the store: versions, verdicts, hints and predictions of a student
lineup.py         questions with choices: find the bug
source.py         shows the code that workers run
grading/          answers of a class, each tried in a confined process
"""

from labkit.course.answers import register
from labkit.course.predictions import Prediction, predict
from labkit.course.verdict import Verdict

__all__ = ["Prediction", "Verdict", "predict", "register"]

register()
