"""The chain from text to a checked app: text, syntax, IR, checked IR. Pure functions all the way."""

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
from weir.spec.problems import invalid
from weir.spec.read import Notes
from weir.spec.syntax import Document

MAX_PARTS = 5_000
"""Queues, webhooks, channels and alerts of one app. With so many, reading takes a core for a second, and in a
thread holds the event loop up by 25 ms at most; with 40,000 it was 0.7 s."""


def read_document(text: str, *, file: str = "<spec>") -> Document:
    """The syntax tree, by the ending of the file: `.json`, `.yaml`/`.yml`, anything else is spec text."""
    match PurePath(file).suffix.lower():
        case ".json":
            return load_json(text, file=file)
        case ".yaml" | ".yml":
            return load_yaml(text, file=file)
    return parse(text, file=file)


def read_spec(text: str, *, file: str = "<spec>") -> AppSpec:
    """The checked app that a text describes; SpecInvalid shows every mistake at its place."""
    document = read_document(text, file=file)
    parts = len(document.app.body or ())
    if parts > MAX_PARTS:
        raise SpecInvalid(
            f"{file}: a spec has {parts} parts; at most {MAX_PARTS} are allowed, "
            "split it over several environments or define queues over HTTP"
        )
    return checked(document)


def spec_of(data: Mapping[str, Any], *, file: str = "<stored>") -> AppSpec:
    """The checked app that stored data describes."""
    return checked(document_of(data, file=file))


def checked(document: Document) -> AppSpec:
    """The app of a syntax tree, if nothing is wrong with it."""
    notes = Notes()
    app = build(document.app, notes)
    if not notes.problems:
        check(app, notes)
    if notes.problems:
        raise invalid(notes.problems, file=document.file, text=document.text)
    return app
