# `make` lists what there is to do. The first target that needs .venv builds it (a minute, 3 GB).

# PYTHON3=python3.12 builds .venv with that Python. PY=python3 uses a Python that has everything already, and builds
# nothing. OFFLINE=1: see `wheels`. HOST=1 keeps torch and whatever else `python3` has, and adds what it lacks. ZERO=1 adds DeepSpeed, for lab 04's section on ZeRO; without it that section shows
# the recorded run.
PY        = .venv/bin/python
PYTHON3   = python3
ARGS      =
JOBS      = 2
OFFLINE   =
HOST      =
ZERO      =
PDF       =
DIR       =
NB        =
# A path reaches a recipe in the environment: written into it, the shell would read what is in it. WORK is the folder of
# the student's copies of the notebooks; git ignores work/.
export DIR NB A B
WORK      = $${LABKIT_WORK:-$$PWD/work}
ifeq ($(PY),.venv/bin/python)
READY     = .venv/.ready $(if $(ZERO),.venv/.zero)
endif

.DEFAULT_GOAL := help
.PHONY: help run report book card compare test test-all lab reset handout grade data scorecard bench lint lock wheels clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

run: $(READY)  ## run every notebook on this machine, write runs/report/index.html (ARGS="02 -p size full -p gpus 4")
	@$(PY) -m labkit.batch $(ARGS)

report: $(READY)  ## rebuild the report's pages from what ran
	@$(PY) -m labkit.batch --report-only $(ARGS)

book: $(READY)  ## write the pages as recorded, to be read without a node: book/index.html (PDF=1: book/book.pdf, by Chromium)
	@$(PY) -m labkit.batch.book $(if $(PDF),--pdf) $(ARGS)

card: $(READY)  ## measure this node's key figures alone: verdicts in runs/report/index.html (ARGS="--fail-on below", ARGS="--nodes 8")
	@$(PY) -m labkit.card $(ARGS)

compare: $(READY)  ## what changed between two runs or reports, the last two cards by default (A=… B=…)
	@$(PY) -m labkit.card.compare $(if $(A),"$$A") $(if $(B),"$$B") $(ARGS)

# One notebook is one kernel: loadfile keeps its cells in one worker, in order. The notebooks take longest, so they come
# first; what comes last is short, and no worker waits long for the other.
PYTEST = $(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --nbval --nbval-current-env notebooks tests
test: $(READY)  ## test what a user relies on, the notebooks' stored outputs among it (ARGS="-k broadcast")
	@$(PYTEST) -m "not slow or quick" $(ARGS)

test-all: $(READY)  ## run all tests: every fault, Slurm, other users, the browser
	@$(PYTEST) $(ARGS)

# The token in the printed address lets in; nothing listens beyond this machine.
lab: $(READY)  ## open JupyterLab on your copies of the notebooks (on a far node: ssh -L 8888:127.0.0.1:8888 NODE)
	@$(PY) -m labkit.tools.work --folder "$(WORK)" refresh
	@JUPYTER_PREFER_ENV_PATH=1 $(PY) -m jupyterlab --ip=127.0.0.1 --ServerApp.root_dir="$(WORK)" --LabApp.news_url=None \
	  $$(test -f "$(WORK)/00_start.ipynb" && echo --LabApp.default_url=/lab/tree/00_start.ipynb) \
	  --LabApp.app_settings_dir="$$PWD/labkit/tools/lab_settings" \
	  $(if $(filter 0,$(shell id -u)),--allow-root) $(if $(DISPLAY),,--no-browser) $(ARGS)

reset: $(READY)  ## make a copy as it was handed out, keep yours beside it (NB=02)
	@$(PY) -m labkit.tools.work --folder "$(WORK)" reset "$$NB"

handout: $(READY)  ## what a class gets: handout/, handout.zip, handout-workbook.zip
	@$(PY) -m labkit.tools.handout $(ARGS)

grade: $(READY)  ## grade all students, each answer in a confined process (DIR=submissions, a folder for each)
	@$(PY) -m labkit.tools.grade "$$DIR" $(ARGS)

data: $(READY)  ## fetch CIFAR-10 into data/cifar-10 and check its digest (lab 13; without it: made images)
	@$(PY) -m labkit.tools.images $(ARGS)

scorecard: $(READY)  ## what the recorded runs reach of each goal, as CSV
	@$(PY) tests/scorecard.py

bench: $(READY)  ## measure what a launch costs on this machine
	@$(PY) -m labkit.tools.bench $(ARGS)

lint: $(READY)  ## check style and formatting of code and notebooks, and the types of labkit and lessons
	@$(PY) -m ruff check . $(ARGS)
	@$(PY) -m ruff format --check labkit notebooks/lessons tests
	@$(PY) -m basedpyright

lock: $(READY)  ## renew the second part of requirements.txt: a version of each package that the first part needs
	@$(PY) .ci/lock.py

# For a GPU node that has torch, transformers, triton and pandas but no registry. Here: `make wheels PYTHON=3.12` (the
# node's version), then copy the checkout there, wheelhouse/ with it. There: `make run OFFLINE=1`. The .venv that this
# builds sees the packages of the python3 that was called, a virtual environment or not. None is replaced; what is missing
# comes from wheelhouse/, and pip names what is not there either.
# HAVE="numpy pandas matplotlib" leaves out what the node has. Add jupyterlab, or pytest and the like:
# make wheels WHEELS="papermill … jupyterlab".
PYTHON = 3.12
WHEELS = papermill nbclient sphinx myst-nb sphinx-book-theme latex2mathml nbformat ipykernel ipywidgets tqdm Pygments psutil nvidia-ml-py seaborn networkx
HAVE   =
wheels: $(READY)  ## fetch what `make run` needs on a node without a registry into wheelhouse/ (PYTHON=3.12)
	@rm -rf wheelhouse && mkdir wheelhouse
	@$(PY) labkit/tools/pip_for.py $(PYTHON) download --disable-pip-version-check --progress-bar off --dest wheelhouse \
	  --constraint requirements.txt --implementation cp \
	  --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 $(WHEELS)
	@printf '%s\n' $(WHEELS) > wheelhouse/requirements.txt
	@rm -f $(HAVE:%=wheelhouse/%-*.whl)
	@echo "wheelhouse/: $$(ls wheelhouse/*.whl | wc -l) wheels, $$(du -sh wheelhouse | cut -f1). On the node: make run OFFLINE=1"

clean:  ## remove runs/ with all reports, and the caches; keep .venv, recorded data and your answers
	@echo "removing runs/ ($$(ls runs 2>/dev/null | grep -c -- - || true) runs, $$(ls runs/reports 2>/dev/null | wc -l) earlier\
	 reports) and the caches of pytest, ruff, hypothesis and Python"
	@rm -rf runs .pytest_cache .ruff_cache .hypothesis
	@find . -path ./.venv -prune -o -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) -print0 | xargs -0 rm -rf

# A .pth file makes labkit and lessons importable without a build backend, which a fresh .venv need not have. As pip does
# with what it installs, they are compiled: where PYTHONDONTWRITEBYTECODE is set, each process would do it again.
.venv/.ready: requirements.txt pyproject.toml $(if $(OFFLINE),$(wildcard wheelhouse/requirements.txt))
	@$(PYTHON3) -c "import sys; sys.version_info >= (3, 11) or sys.exit('The workbook needs Python 3.11 or newer, and \
	$(PYTHON3) is ' + sys.version.split()[0] + '. Name another one: make $(MAKECMDGOALS) PYTHON3=python3.12')"
ifneq ($(OFFLINE)$(HOST),)
	$(PYTHON3) labkit/tools/offline.py $(if $(HOST),$(WHEELS))
else
	$(PYTHON3) -m venv .venv
	.venv/bin/python -m pip install --disable-pip-version-check --progress-bar off -r requirements.txt
endif
	@.venv/bin/python -c "import pathlib, sysconfig; here = pathlib.Path.cwd(); \
	  pathlib.Path(sysconfig.get_path('purelib'), 'labkit.pth').write_text(f'{here}\n{here}/notebooks\n')"
	@.venv/bin/python -m compileall -q labkit notebooks/lessons
	@touch $@

# DeepSpeed is built from source against the torch that is there; its operators would be compiled, and none is needed.
.venv/.zero: .venv/.ready
	.venv/bin/python -m pip install --disable-pip-version-check --progress-bar off setuptools wheel
	DS_BUILD_OPS=0 .venv/bin/python -m pip install --disable-pip-version-check --progress-bar off --no-build-isolation \
	  deepspeed==0.19.8
	@touch $@
