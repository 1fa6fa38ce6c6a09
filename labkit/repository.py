"""Where this checkout is, the folders of its data, and the modules of its plans."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PUBLISHED = REPOSITORY / "data" / "published"  # figures that reports printed
RECORDED = REPOSITORY / "data" / "recorded"  # runs on real nodes, replayable
MODELS = REPOSITORY / "data" / "models"  # configurations of models, as JSON
CIFAR10 = REPOSITORY / "data" / "cifar-10"  # where `make data` puts the images of CIFAR-10

# The modules that define plans. A plan file names one of them, and no other module of a file's choice is imported.
PLAN_MODULES = re.compile(r"labkit\.(labs\.\w+\.plan|engine\.call)")
