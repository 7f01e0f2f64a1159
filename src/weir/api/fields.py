"""Checking the fields of hot-path requests by hand: strict types, and the place of what is wrong."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from weir.api.problems import invalid
from weir.errors import InvalidInput


class Fields:
    """One JSON object whose members are taken one by one; `done` refuses what nobody took."""

    __slots__ = ("_document", "_left", "_pointer")

    def __init__(self, document: Any, pointer: str = "#") -> None:
        if not isinstance(document, dict):
            raise invalid(pointer, "expected an object")
        self._document: dict[str, Any] = document
        self._left = len(document)
        self._pointer = pointer

    def take(self, name: str) -> Any:
        """The raw value, or None; None and absent are the same."""
        if name in self._document:
            self._left -= 1
            return self._document[name]
        return None

    def text(self, name: str, *, max_bytes: int = 255) -> str | None:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(name, "expected a string")
        if len(value) > max_bytes or (not value.isascii() and len(value.encode()) > max_bytes):
            raise self.wrong(name, f"has more than {max_bytes} bytes")
        return value

    def required_text(self, name: str, *, max_bytes: int = 255) -> str:
        value = self.text(name, max_bytes=max_bytes)
        if not value:
            raise self.wrong(name, "is missing or empty")
        return value

    def number(self, name: str, *, least: int, most: int) -> int | None:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.wrong(name, f"expected an integer from {least} to {most}")
        return value

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "expected true or false")
        return bool(value)

    def choice(self, name: str, options: tuple[str, ...]) -> str | None:
        value: str | None = self.take(name)
        if value is not None and value not in options:
            raise self.wrong(name, f"expected one of {', '.join(options)}")
        return value

    def array(self, name: str, *, most: int) -> list[Any]:
        value = self.take(name)
        if not isinstance(value, list) or not value:
            raise self.wrong(name, "expected a non-empty array")
        if len(value) > most:
            raise self.wrong(name, f"has {len(value)} elements; at most {most} are taken at once")
        return value

    def texts(self, name: str, *, most: int = 64, max_bytes: int = 4_096) -> Mapping[str, str] | None:
        """An object of strings."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, dict) or len(value) > most:
            raise self.wrong(name, f"expected an object of at most {most} strings")
        for key, text in value.items():
            if not key or not isinstance(text, str) or len(key) > 255 or len(text) > max_bytes:
                raise self.wrong(
                    name, f"expected strings of at most {max_bytes} characters under short names"
                )
        return value

    def base64(self, name: str) -> bytes | None:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(name, "expected a string of base64")
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise self.wrong(name, "is not base64") from None

    def done(self) -> None:
        """Every member must have been taken."""
        if self._left > 0:
            known = "it has members that this route does not know"
            raise InvalidInput(
                f"`{self._pointer}`: {known}", errors=[{"pointer": self._pointer, "detail": known}]
            )

    def wrong(self, name: str, detail: str) -> InvalidInput:
        return invalid(f"{self._pointer}/{name}", detail)


def query_document(query: Mapping[str, str], *, numbers: tuple[str, ...]) -> dict[str, Any]:
    """Query parameters as the object that a body would be."""
    document: dict[str, Any] = dict(query)
    for name in numbers:
        text = query.get(name)
        if text is not None:
            plain = text.isascii() and text.lstrip("-").isdigit() and len(text) < 20
            document[name] = int(text) if plain else text
    return document
