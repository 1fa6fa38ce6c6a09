"""`make grade DIR=submissions`: judges every answer of every student in a process of its own; writes CSV and pages."""

import argparse
import math
import os
import sys
from datetime import datetime
from pathlib import Path

from tqdm import tqdm

from labkit.course.grading import confine, grade_pages
from labkit.course.grading.earlier import about_run
from labkit.course.grading.grade import exercises_to_grade, grade
from labkit.course.grading.roster import with_roster
from labkit.course.grading.submissions import few, left_out, submissions
from labkit.engine.run_folder import runs_folder
from labkit.node import here
from labkit.repository import chosen_notebooks

NO_SECRET = "LABKIT_GRADING_SECRET is not set, so students can compute their hidden cases"


def seconds(text: str) -> float:
    """Return the time of an answer; argparse tells of any other text that it is no valid value of seconds."""
    if not 0 < float(text) < math.inf:
        raise ValueError(text)
    return float(text)


def timestamp(text: str) -> float:
    """Return the seconds since 1970 of a local date and time; ValueError for any other text."""
    return datetime.fromisoformat(text).timestamp()


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
    parser.add_argument("--roster", type=Path, help="the class as CSV with the columns name, id, or both")
    parser.add_argument("--due", type=timestamp, default=math.inf, help="as 2026-12-01T23:59: later answers are late")
    options = parser.parse_args(arguments)
    try:
        handed_in = submissions(options.folder)
        pages = chosen_notebooks(options.notebooks) if options.notebooks else []
        labs = [page.stem.partition("_")[2] for page in pages]
        confine.require_confinement()
        others = f"not read, for it is no student's: {few(names)}" if (names := left_out(options.folder)) else ""
        handed_in = with_roster(handed_in, options.roster) if options.roster else handed_in
        exercises, about = exercises_to_grade(handed_in, labs), about_run(options.secret)
        written = grade_pages.Pages(options.out, exercises, [others, about], options.due)
    except (ValueError, OSError, confine.Unconfined) as error:
        print(f"make grade: {error}", file=sys.stderr)
        return 2
    if not options.secret:
        print(f"make grade: {NO_SECRET}", file=sys.stderr)
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
    print(about)
    print(f"{written.index}, grades.csv and students.csv beside it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
