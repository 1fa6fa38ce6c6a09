# For the type checker, pandas' tables hold anything: its own types give every cell of a row a union of twenty kinds,
# and every line that reads a table would be an error. What the tables hold is checked by tests.
from typing import Any

class DataFrame(Any):
    def __init__(self, *arguments: Any, **named: Any) -> None: ...

class Series(Any):
    def __init__(self, *arguments: Any, **named: Any) -> None: ...

def __getattr__(name: str) -> Any: ...
