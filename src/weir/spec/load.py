"""JSON and YAML to the syntax tree of spec text, so that one builder reads all three."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from weir.errors import SpecInvalid
from weir.spec.ir import PART_KINDS
from weir.spec.parse import one_line
from weir.spec.syntax import (
    NOWHERE,
    Condition,
    Document,
    JsonValue,
    Listing,
    Scalar,
    SourceSpan,
    SyntaxEntry,
    Value,
    ValueKind,
)

_PLURALS = {**PART_KINDS, "consumers": "consumer"}
_EXPRESSIONS = ("inputs", "input_map")
# Far deeper than any spec; it keeps recursion short.
MAX_DEPTH = 16
# Less than for spec text, which is read about thirty times as fast.
MAX_YAML = 256 * 1024


class _Marked(dict[str, Any]):
    """A mapping that keeps the source position of each key."""

    marks: dict[str, SourceSpan]


class _Loader(yaml.SafeLoader):
    """YAML's safe subset without aliases, with the positions of keys. Times and dates stay texts."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse aliases: a few aliases of aliases would expand into more than the memory holds."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(
                None, None, f"the alias `*{event.anchor}` is not taken here; write it out", event.start_mark
            )
        return super().compose_node(parent, index)


def _construct_mapping(loader: _Loader, node: yaml.MappingNode) -> _Marked:
    result = _Marked()
    result.marks = {}
    for key_node, value_node in node.value:
        key = str(loader.construct_object(key_node, deep=True))
        mark = key_node.start_mark
        if key in result:
            raise yaml.constructor.ConstructorError(None, None, f"`{key}` stands twice; keep one", mark)
        result[key] = loader.construct_object(value_node, deep=True)
        result.marks[key] = SourceSpan(mark.line + 1, mark.column + 1, mark.index, mark.index + len(key))
    return result


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)
# Without the resolver of timestamps: a date must stay the text that JSON and spec text would have.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_yaml(text: str, *, file: str) -> Document:
    """The tree of a YAML document."""
    if len(text) > MAX_YAML:
        raise SpecInvalid(f"{file}: YAML of {len(text)} characters; at most {MAX_YAML}, or use spec text")
    try:
        data = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        raise SpecInvalid(f"{where}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise SpecInvalid(
            f"{file}: {str(error).splitlines()[0] if str(error) else 'cannot be read'}"
        ) from None
    return _document(data, text=text, file=file)


def load_json(text: str, *, file: str) -> Document:
    """The tree of a JSON document."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise SpecInvalid(f"{file}:{error.lineno}:{error.colno}: {error.msg}") from None
    except ValueError as error:
        raise SpecInvalid(f"{file}: {error}") from None
    except RecursionError:
        raise SpecInvalid(f"{file}: the document is nested too deeply") from None
    return _document(data, text=text, file=file)


def document_of(data: Mapping[str, Any], *, file: str = "<spec>") -> Document:
    """The tree of stored data."""
    return _document(data, text="", file=file)


def _document(data: Any, *, text: str, file: str) -> Document:
    if not isinstance(data, Mapping):
        raise SpecInvalid(f"{file}: a spec is an object with `app` and `queues`")
    name = data.get("app")
    body = tuple(
        entry
        for key, value in data.items()
        if key != "app"
        for entry in _entries(key, value, _mark(data, key), 0)
    )
    label = _scalar(name, _mark(data, "app")) if isinstance(name, str) else None
    return Document(file=file, text=text, app=SyntaxEntry("app", NOWHERE, NOWHERE, label=label, body=body))


def _mark(data: Any, key: str) -> SourceSpan:
    return data.marks.get(key, NOWHERE) if isinstance(data, _Marked) else NOWHERE


def _entries(key: str, value: Any, span: SourceSpan, depth: int) -> list[SyntaxEntry]:
    """The entries of one key of an object. A key with named blocks gives several."""
    if depth > MAX_DEPTH:
        raise SpecInvalid(f"`{key}` is nested too deep")
    if key == "payload":
        return [SyntaxEntry(key, span, span, value=JsonValue(_plain(value), span))]
    if key in _PLURALS and isinstance(value, Mapping):
        kind = _PLURALS[key]
        return [
            SyntaxEntry(
                kind,
                _mark(value, name),
                _mark(value, name),
                label=_scalar(str(name), _mark(value, name)),
                body=_body(part, depth),
            )
            for name, part in value.items()
        ]
    if isinstance(value, Mapping):
        return [_block(key, value, span, depth)]
    return [SyntaxEntry(key, span, span, value=_value(key, value, span))]


def _plain(value: Any) -> Any:
    """A JSON value without the marks of its keys."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def _body(value: Any, depth: int) -> tuple[SyntaxEntry, ...] | None:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        return None
    return tuple(
        entry
        for key, part in value.items()
        for entry in _entries(str(key), part, _mark(value, str(key)), depth + 1)
    )


def _block(key: str, value: Mapping[str, Any], span: SourceSpan, depth: int) -> SyntaxEntry:
    """The entry of an object: a plain block, or a form that spec text writes as `key: value { … }`."""
    match key:
        case "map_to":
            entity = value.get("entity", value.get("entity_type"))
            target = Scalar(ValueKind.PATH, f"{entity}.{value.get('command')}", "", span)
            return SyntaxEntry(key, span, span, value=target, body=_inputs(value))
        case "enqueue":
            return SyntaxEntry(key, span, span, value=_scalar(value.get("queue"), span), body=_inputs(value))
        case "deliver":
            rest = _Marked((name, part) for name, part in value.items() if name != "url")
            rest.marks = getattr(value, "marks", {})
            target = Scalar(ValueKind.URL, str(value.get("url")), "", span)
            return SyntaxEntry(key, span, span, value=target, body=_body(rest, depth))
        case "verify":
            rest = _Marked((name, part) for name, part in value.items() if name != "scheme")
            rest.marks = getattr(value, "marks", {})
            if value.get("scheme") == "hmac":
                return SyntaxEntry("verify_hmac", span, span, body=_body(rest, depth))
            return SyntaxEntry(
                key, span, span, label=_scalar(str(value.get("scheme")), span), body=_body(rest, depth)
            )
        case "message_type":
            return SyntaxEntry(key, span, span, body=_fields(value))
        case "when":
            return SyntaxEntry(key, span, span, value=_condition(value, span))
    return SyntaxEntry(key, span, span, body=_body(value, depth))


def _fields(value: Mapping[str, Any]) -> tuple[SyntaxEntry, ...]:
    return tuple(
        SyntaxEntry(str(name), span, span, value=Scalar(ValueKind.TYPE, str(kind), str(kind), span))
        for name, kind in value.items()
        for span in (_mark(value, str(name)),)
    )


def _inputs(value: Mapping[str, Any]) -> tuple[SyntaxEntry, ...]:
    inputs: Mapping[str, Any] = next(
        (value[name] for name in _EXPRESSIONS if isinstance(value.get(name), Mapping)), {}
    )
    return tuple(
        SyntaxEntry(
            str(name),
            _mark(inputs, str(name)),
            _mark(inputs, str(name)),
            value=Scalar(ValueKind.EXPRESSION, one_line(str(text)), str(text), _mark(inputs, str(name))),
        )
        for name, text in inputs.items()
    )


def _condition(value: Mapping[str, Any], span: SourceSpan) -> Condition | None:
    threshold = _scalar(value.get("threshold"), span)
    operator = value.get("operator")
    if operator not in (">", ">=", "<", "<=") or threshold is None or threshold.kind is not ValueKind.NUMBER:
        return None
    return Condition(Scalar(ValueKind.WORD, str(value.get("metric")), "", span), operator, threshold, span)


def _value(key: str, value: Any, span: SourceSpan) -> Value | None:
    if isinstance(value, list):
        return Listing(
            tuple(item for item in (_scalar(one, span) for one in value) if item is not None), span
        )
    if key == "map_to" and isinstance(value, str):
        return Scalar(ValueKind.PATH, value.removeprefix("command").strip(), value, span)
    if key == "deliver" and isinstance(value, str):
        return Scalar(ValueKind.URL, value, value, span)
    if key == "when" and isinstance(value, str):
        return _condition_text(value, span)
    return _scalar(value, span)


def _condition_text(text: str, span: SourceSpan) -> Condition | None:
    parts = text.split()
    if len(parts) != 3:
        return None
    try:
        threshold: float = float(parts[2])
    except ValueError:
        return None
    return _condition({"metric": parts[0], "operator": parts[1], "threshold": threshold}, span)


def _scalar(value: Any, span: SourceSpan) -> Scalar | None:
    match value:
        case bool():
            return Scalar(ValueKind.FLAG, value, str(value).lower(), span)
        case int() | float():
            return Scalar(ValueKind.NUMBER, value, str(value), span)
        case str():
            return Scalar(ValueKind.STRING, value, value, span)
    return None
