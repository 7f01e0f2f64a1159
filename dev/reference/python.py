"""The page of the public Python names, from their signatures and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

_WIDTH = 100
"""A longer signature has one parameter per line."""
_MODULES = ("weir", "weir.worker", "weir.outbox", "weir.metrics", "weir.testing")
_INTRO = """# Python

Every public name with its signature and an example. [The Python client](client.md) explains how they go
together.

Generated from the docstrings.
"""


def python_page() -> str:
    return "\n".join([_INTRO, *(line for name in _MODULES for line in _module(import_module(name)))])


def _module(module: ModuleType) -> Iterator[str]:
    yield f"\n## {module.__name__}\n"
    yield f"{inspect.getdoc(module)}\n"
    for name in module.__all__:
        yield from _name(module.__name__, name, getattr(module, name))


def _name(module: str, name: str, owner: Any) -> Iterator[str]:
    yield f"### {module}.{name}\n"
    if inspect.isclass(owner) or inspect.isroutine(owner):
        yield from _signature(name, owner)
    yield f"{inspect.getdoc(owner) or ''}\n"
    if inspect.isclass(owner):
        for method, function in inspect.getmembers(owner, inspect.isfunction):
            if not method.startswith("_") and function.__doc__ and _belongs(function, name):
                yield f"#### {name}.{method}\n"
                yield from _signature(f"{name}.{method}", function)
                yield f"{inspect.getdoc(function)}\n"


def _belongs(function: Any, name: str) -> bool:
    """Whether a method is shown with this class. Clients inherit some from classes that are not public."""
    own: bool = function.__qualname__.startswith(f"{name}.")
    return own or function.__module__.startswith("weir.client.")


def _signature(name: str, owner: Any) -> Iterator[str]:
    try:
        found = inspect.signature(owner)
    except ValueError:
        return
    texts = list(_parameters(found))
    answer = (
        ""
        if found.return_annotation in (found.empty, "None", None)
        else f" -> {_type(found.return_annotation)}"
    )
    line = f"{name}({', '.join(texts)}){answer}"
    if len(line) > _WIDTH:
        line = f"{name}(\n    " + ",\n    ".join(texts) + f",\n){answer}"
    yield f"```python\n{line}\n```\n"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    """The parameters as they are written, with a star before the keyword-only ones."""
    starred = False
    for one in signature.parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        mark = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        typed = (
            f"{mark}{one.name}: {_type(one.annotation)}"
            if one.annotation is not one.empty
            else f"{mark}{one.name}"
        )
        yield typed if one.default is one.empty else f"{typed} = {_default(one.default)}"


def _type(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _default(value: Any) -> str:
    """A default as it is written; `…` for an object that has no literal."""
    return "…" if repr(value).startswith("<") else repr(value)
