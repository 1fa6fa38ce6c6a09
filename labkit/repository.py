"""Where this checkout is, and the folders of its data."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PUBLISHED = REPOSITORY / "data" / "published"  # figures that reports printed
RECORDED = REPOSITORY / "data" / "recorded"  # runs on real nodes, replayable
MODELS = REPOSITORY / "data" / "models"  # configurations of models, as JSON
