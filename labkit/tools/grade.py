"""`make grade DIR=submissions`: judges every answer of every student in a process of its own; writes CSV and pages."""

import argparse
import math
import os
import sys
from pathlib import Path

from tqdm import tqdm

from labkit.course.grading import confine, grade_pages
from labkit.course.grading.grade import exercises_to_grade, grade
from labkit.course.grading.submissions import few, left_out, submissions
from labkit.engine.run_folder import runs_folder
from labkit.node import here
from labkit.repository import chosen_notebooks


def seconds(text: str) -> float:
    """Return the time of an answer; argparse tells of any other text that it is no valid value of seconds."""
    if not 0 < float(text) < math.inf:
        raise ValueError(text)
    return float(text)


def main(arguments: list[str] | None = None) -> int:
    """Grade what the arguments name; return 0, or 2 with a sentence where that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m labkit.tools.grade", description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder or a zip per student, with notebooks or files of answers")
    parser.add_argument("--notebooks", nargs="*", default=[], help="as 02 (default: all that somebody answered)")
    parser.add_argument("--out", type=Path, default=runs_folder() / "grades", help="the folder of the grades")
    parser.add_argument("--seconds", type=seconds, default=20.0, help="the time of one answer, from start to end")
    parser.add_argument("--memory-mib", type=int, default=4096, help="the memory of one answer")
    cores = max(1, int(here().usable_cores))
    parser.add_argument("--jobs", type=int, default=cores, help="answers that are tried at the same time")
    parser.add_argument(
        "--secret",
        default=os.environ.get("LABKIT_GRADING_SECRET", ""),
        help="with the student's name, decides the hidden cases; without it, students could find theirs out",
    )
    options = parser.parse_args(arguments)
    try:
        handed_in = submissions(options.folder)
        pages = chosen_notebooks(options.notebooks) if options.notebooks else []
        labs = [page.stem.partition("_")[2] for page in pages]
        confine.require_confinement()
        others = f"not read, for it is no student's: {few(names)}" if (names := left_out(options.folder)) else ""
        written = grade_pages.Pages(options.out, others)
    except (ValueError, OSError, confine.Unconfined) as error:
        print(f"make grade: {error}", file=sys.stderr)
        return 2
    exercises = exercises_to_grade(handed_in, labs)
    limits = confine.Limits(options.seconds, options.memory_mib)
    jobs = options.jobs if confine.side_by_side() else 1
    graded = grade(handed_in, exercises, limits=limits, secret=options.secret, jobs=jobs)
    for submission, rows in zip(handed_in, graded, strict=True):
        try:
            written.add(submission, rows)
        except OSError as error:
            kept = f"the grades of the students before {submission.student!a} are kept"
            print(f"make grade: {options.out} cannot be written any more ({error.strerror}); {kept}", file=sys.stderr)
            return 2
        line = "; ".join([f"{submission.student}: {grade_pages.points_text(rows)} points", *submission.problems])
        tqdm.write(grade_pages.visible(line))
    if others:
        print(grade_pages.visible(others))
    print(f"{written.index} and grades.csv beside it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
