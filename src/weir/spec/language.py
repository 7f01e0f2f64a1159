"""From text to a checked app by pure functions: text, syntax tree, IR, checked IR."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from weir.errors import SpecInvalid
from weir.spec.build import build
from weir.spec.check import check
from weir.spec.ir import AppSpec
from weir.spec.load import document_of, load_json, load_yaml
from weir.spec.parse import parse
from weir.spec.read import Notes
from weir.spec.spec_problems import invalid
from weir.spec.syntax import Document

# Queues, webhooks, channels, alerts and schedules of one app. Reading this many takes a second of one core,
# and delays the event loop by at most 25 ms when it runs in a thread. With 40,000 parts the delay was 0.7 s.
MAX_PARTS = 5_000


def read_document(text: str, *, file: str = "<spec>") -> Document:
    """The syntax tree of a file: JSON, YAML or spec text, by the ending of its name."""
    match PurePath(file).suffix.lower():
        case ".json":
            return load_json(text, file=file)
        case ".yaml" | ".yml":
            return load_yaml(text, file=file)
    return parse(text, file=file)


def read_spec(text: str, *, file: str = "<spec>") -> AppSpec:
    """The checked app of a text; SpecInvalid shows every mistake with its line."""
    document = read_document(text, file=file)
    parts = len(document.app.body or ())
    if parts > MAX_PARTS:
        raise SpecInvalid(
            f"{file}: a spec has {parts} parts; at most {MAX_PARTS} are allowed, "
            "split it over several environments or define queues over HTTP"
        )
    return checked(document)


def spec_of(data: Mapping[str, Any], *, file: str = "<stored>") -> AppSpec:
    """The checked app of stored data."""
    return checked(document_of(data, file=file))


def checked(document: Document) -> AppSpec:
    """The checked app of a syntax tree."""
    notes = Notes()
    app = build(document.app, notes)
    # A part that could not be read would only cause further mistakes, such as references to a missing queue.
    if not notes.problems:
        check(app, notes)
    if notes.problems:
        raise invalid(notes.problems, file=document.file, text=document.text)
    return app
