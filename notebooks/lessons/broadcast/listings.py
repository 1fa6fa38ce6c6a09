"""The suspects of lab 02 as code: the functions that the workers run, under one name."""

from labkit.course.source import code_of
from lessons.broadcast.bugs import SYMPTOMS

CODES = {name: code_of(f"lessons.broadcast.bugs.{name}").replace(f"def {name}(", "def broadcast(") for name in SYMPTOMS}
