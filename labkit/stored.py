"""JSON → dataclass, as `dataclasses.asdict` made it, before or after it was written: each field of its type."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

_Kind = TypeVar("_Kind")


def restored(kind: type[_Kind], stored: Any) -> _Kind:
    """Return the dataclass that a JSON object holds; unknown keys are ignored, a field with a default may be absent.

    Lists become the tuples that fields declare. Raises ValueError, one sentence that names class and field.
    """
    if not isinstance(stored, dict):
        raise ValueError(f"a {kind.__name__} is a JSON object, not {str(stored)[:80]!r}")
    values = {}
    for name, (form, required) in _fields(kind).items():
        if name in stored:
            values[name] = _value(form, stored[name], f"a {kind.__name__} whose {name!r}")
        elif required:
            raise ValueError(f"a {kind.__name__} without {name!r}")
    return kind(**values)


@functools.cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Return by name what a field's type is, and whether it has no default."""
    types = get_type_hints(kind)
    return {
        field.name: (types[field.name], field.default is field.default_factory is MISSING)
        for field in fields(kind)
        if field.init
    }


def _value(form: Any, value: Any, what: str) -> Any:
    """Return a value in the form that a field declares; ValueError where it has another one."""
    outer, inner = get_origin(form), get_args(form)
    if form is Any:
        return value
    if outer in (Union, UnionType):
        if value is None and type(None) in inner:
            return None
        form = next(each for each in inner if each is not type(None))
        return _value(float if float in inner else form, value, what)
    if is_dataclass(form):
        return restored(form, value)  # pyright: ignore[reportArgumentType]
    if outer in (tuple, list) and isinstance(value, list | tuple):
        several = outer is list or inner[-1] is Ellipsis
        if not several and len(value) != len(inner):
            raise ValueError(f"{what} is {str(value)[:80]!r}")
        forms = [inner[0]] * len(value) if several else inner
        return outer(_value(each, item, what) for each, item in zip(forms, value, strict=True))
    expected: Any = {float: int | float, tuple: (), list: ()}.get(outer or form, outer or form)
    if not isinstance(value, expected) or (isinstance(value, bool) and form is not bool):
        raise ValueError(f"{what} is {str(value)[:80]!r}")
    if isinstance(value, dict) and outer is dict:
        return {key: _value(inner[1], item, what) for key, item in value.items()}
    return value


def unknown_key(values: Iterable[str], names: Iterable[str]) -> str:
    """Return half a sentence on the first key that is none of the names, with the nearest one; "" where all are."""
    names = [*names]
    for key in values:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
            return f"the key {key!r} is not known; {meant}"
    return ""
