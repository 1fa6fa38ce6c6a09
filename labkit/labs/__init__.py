"""The lessons, one folder each, named like its notebook."""

import importlib


def front_door(package: str, **rooms: list[str]):
    """Give a lab's `__getattr__` and `__all__`: each name is fetched from its file when it is first used.

    A worker that imports its lab's plan thus loads no drawing library, and the kernel no more than it uses.
    """
    where = {name: room for room, names in rooms.items() for name in names}

    def fetch(name: str):
        if name not in where:
            raise AttributeError(f"{package} has no {name!r}; it has {', '.join(sorted(where))}")
        return getattr(importlib.import_module(f"{package}.{where[name]}"), name)

    return fetch, sorted(where)
