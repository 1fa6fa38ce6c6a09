"""Grading: answers of students, each tried in a confined process with cases of its own, judged outside of it.

submissions.py        what students handed in
roster.py             the class as a list, and who handed in nothing
shown_work.py         what a person reads of it: predictions, bugs, cells of their own
handed_files.py       their files, in folders and zips
grade.py              a row per student and exercise
confined_judge.py     one answer: tried in a confined process, judged here
confine.py            Python without the grader's files, network and processes
confined_entry.py     what that process runs first (far side)
confined_attempt.py   what it does with the answer (far side)
confinement_probe.py  tries whether a confinement holds (far side)
process_tree.py       a process with all that it has started
memory_group.py       a control group that counts what the kernel holds for it, too
grade_pages.py        grades as CSV and pages
earlier.py            what was graded before, and what this run is
handout.py            what a class is handed
package/              README and rules for AI assistants in the student's package
"""
