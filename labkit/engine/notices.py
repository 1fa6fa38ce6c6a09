"""What a launch tells its user and goes on: a warning that never becomes an error."""

from __future__ import annotations

import sys
import warnings


def notice(text: str, stacklevel: int = 1) -> None:
    """Warn of something; under `python -W error`, where a warning would end the launch, print it."""
    try:
        warnings.warn(text, stacklevel=stacklevel + 1)
    except UserWarning:
        print(f"UserWarning: {text}", file=sys.stderr)
