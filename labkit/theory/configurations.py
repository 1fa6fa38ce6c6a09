"""Configurations of the models: data/models, one JSON file a model, read without the library that builds it."""

from __future__ import annotations

import functools
import json
from typing import Any

from labkit.repository import MODELS


@functools.cache
def configuration(name: str) -> dict[str, Any]:
    """Return a model's configuration by name, such as "bert-base"; data/models/README.md lists them.

    Raises FileNotFoundError, naming what there is.
    """
    file = MODELS / f"{name}.json"
    if not file.is_file():
        known = ", ".join(sorted(path.stem for path in MODELS.glob("*.json")))
        raise FileNotFoundError(f"no configuration {name!r} in data/models; there are {known}")
    return json.loads(file.read_text(encoding="utf-8"))
