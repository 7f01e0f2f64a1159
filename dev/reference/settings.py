"""The page of all settings, from `weir.settings`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from weir.settings import PREFIX, Settings

_INTRO = """# Settings

Every setting is an environment variable. `weir config show` prints the values on your machine and where they
come from. A value that is not allowed, or a name that does not exist, ends the command with one line that
says what to do.

Generated from `weir.settings`.
"""
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def settings_page() -> str:
    return "\n".join([_INTRO, *_table("General", Settings, PREFIX), *_sections()])


def _sections() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        if _is_section(field):
            yield from _table(
                name.replace("_", " ").capitalize(), field.annotation, f"{PREFIX}{name.upper()}__"
            )


def _table(title: str, section: Any, prefix: str) -> Iterator[str]:
    yield f"\n## {title}\n"
    yield f"{inspect.getdoc(section)}\n"
    yield "| Setting | Default | Meaning |"
    yield "|---|---|---|"
    for name, field in section.model_fields.items():
        if not _is_section(field):
            yield f"| `{prefix}{name.upper()}` | {_default(field)} | {_meaning(name, field)} |"


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.default, BaseModel)


def _default(field: FieldInfo) -> str:
    match field.default:
        case None:
            return "unset"
        case SecretStr():
            return "a secret"
        case ():
            return "`[]`"
        case bool():
            return f"`{str(field.default).lower()}`"
        case _:
            return f"`{field.default}`" if str(field.default) else "empty"


def _meaning(name: str, field: FieldInfo) -> str:
    text = field.description or name.replace("_", " ")
    found = [f"{_BOUNDS[word]} {bound:,}" for word, bound in _bounds(field)]
    sentence = text[0].upper() + text[1:]
    return f"{sentence} ({', '.join(found)})" if found else sentence


def _bounds(field: FieldInfo) -> Iterator[tuple[str, float]]:
    for limit in field.metadata:
        for word in _BOUNDS:
            if (bound := getattr(limit, word, None)) is not None:
                yield word, bound
