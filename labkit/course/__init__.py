"""The student's side: predictions, answers saved as files that workers import, verdicts that explain."""

from labkit.course.answers import register
from labkit.course.predictions import Prediction, predict
from labkit.course.verdict import Verdict

__all__ = ["Prediction", "Verdict", "predict", "register"]

register()
