"""From text to a checked app by pure functions: text, syntax tree, IR, checked IR."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from weir.spec.bounds import check_bounds
from weir.spec.build import build
from weir.spec.check import PartCheck, check
from weir.spec.ir import AppSpec
from weir.spec.load import document_of, load_json, load_yaml
from weir.spec.parse import parse
from weir.spec.read import EnoughMistakes, Notes
from weir.spec.spec_problems import SpecProblem, invalid
from weir.spec.syntax import NOWHERE, Document, SourceSpan

_ODD = re.compile(r"[\x00\ud800-\udfff]")


def read_document(text: str, *, file: str = "<spec>") -> Document:
    """The syntax tree of a file: JSON, YAML or spec text, by the ending of its name."""
    if odd := _ODD.search(text):
        line = text.count("\n", 0, odd.start()) + 1
        span = SourceSpan(line, odd.start() - text.rfind("\n", 0, odd.start()), odd.start(), odd.end())
        problem = SpecProblem(message="a NUL or half of a character is not allowed; remove it", span=span)
        raise invalid([problem], file=file, text=text)
    match PurePath(file).suffix.lower():
        case ".json":
            return load_json(text, file=file)
        case ".yaml" | ".yml":
            return load_yaml(text, file=file)
    return parse(text, file=file)


def read_spec(text: str, *, file: str = "<spec>", more: Iterable[PartCheck] = ()) -> AppSpec:
    """The checked app of a text; SpecInvalid shows the mistakes with their lines.

    `more` are the checks of other rooms. Whoever applies a spec gives them, and whoever checks one for that.
    """
    try:
        return checked(read_document(text, file=file), more)
    # Whatever a text does to a reader that nobody thought of is a mistake of its author, not of the server.
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        problem = SpecProblem(message=f"this cannot be read: {error!r}", span=NOWHERE)
        raise invalid([problem], file=file, text=text) from error


def spec_of(data: Mapping[str, Any], *, file: str = "<stored>") -> AppSpec:
    """The app of stored data. It was checked when it was stored, and a later release may refuse more."""
    return build(document_of(data, file=file).app, Notes(lenient=True))


def checked(document: Document, more: Iterable[PartCheck] = ()) -> AppSpec:
    """The checked app of a syntax tree."""
    notes = Notes()
    app = AppSpec(name="")
    with suppress(EnoughMistakes):
        check_bounds(document, notes)
        # What could not be read would only cause further mistakes, such as references to a missing queue.
        if not notes.problems:
            app = build(document.app, notes)
        if not notes.problems:
            check(app, notes, more)
    if notes.problems:
        raise invalid(notes.problems, file=document.file, text=document.text)
    return app
