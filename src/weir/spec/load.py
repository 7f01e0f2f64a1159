"""JSON and YAML to the syntax tree of spec text, so that one builder reads all three."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import yaml

from weir.errors import SpecInvalid
from weir.spec.ir import PART_KINDS
from weir.spec.json_source import MAX_DIGITS, JsonSource, Marked, Unreadable
from weir.spec.parse import one_line
from weir.spec.spec_problems import SpecProblem, invalid
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


class _Loader(yaml.SafeLoader):
    """YAML's plain values without aliases, with the positions of keys. Times and dates stay texts."""

    yaml_constructors: ClassVar[dict[str | None, Any]] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse aliases: a few aliases of aliases would expand into more than the memory holds."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise _wrong(f"the alias `*{event.anchor}` is not taken here; write it out", event.start_mark)
        return super().compose_node(parent, index)


def _wrong(message: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(None, None, message, mark)


def _construct_mapping(loader: _Loader, node: yaml.Node) -> Marked:
    if not isinstance(node, yaml.MappingNode):
        raise _wrong("expected a mapping", node.start_mark)
    result = Marked()
    result.marks = {}
    for key_node, value_node in node.value:
        key = str(loader.construct_object(key_node, deep=True))
        mark = key_node.start_mark
        if key in result:
            raise _wrong(f"`{key}` stands twice; keep one", mark)
        result[key] = loader.construct_object(value_node, deep=True)
        result.marks[key] = SourceSpan(mark.line + 1, mark.column + 1, mark.index, mark.index + len(key))
    return result


def _construct_number(loader: _Loader, node: yaml.Node) -> int | float:
    """A number of at most `MAX_DIGITS` characters; a longer one is infinite, and refused later."""
    text = str(loader.construct_scalar(node)) if isinstance(node, yaml.ScalarNode) else ""
    if len(text) > MAX_DIGITS:
        return math.inf
    read = yaml.SafeLoader.yaml_constructors[node.tag]
    try:
        return read(loader, node)  # type: ignore[no-any-return]
    # The library reads the text without a look at it first.
    except (ValueError, IndexError, OverflowError):
        raise _wrong(f"`{text}` is not a number", node.start_mark) from None


def _construct_flag(loader: _Loader, node: yaml.Node) -> Any:
    try:
        return yaml.SafeLoader.yaml_constructors[node.tag](loader, node)
    except KeyError:
        raise _wrong("this is neither `true` nor `false`", node.start_mark) from None


_TAG = "tag:yaml.org,2002:"
for _name in ("null", "str", "seq"):
    _Loader.add_constructor(_TAG + _name, yaml.SafeLoader.yaml_constructors[_TAG + _name])
_Loader.add_constructor(_TAG + "map", _construct_mapping)
_Loader.add_constructor(_TAG + "int", _construct_number)
_Loader.add_constructor(_TAG + "float", _construct_number)
_Loader.add_constructor(_TAG + "bool", _construct_flag)
# Every other tag is refused: YAML's sets, times and bytes have no meaning in a spec.
_Loader.add_constructor(None, yaml.SafeLoader.yaml_constructors[None])
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
        mark = error.problem_mark or error.context_mark
        raise _refused(error.problem or error.context or "", text, file, mark.index if mark else 0) from None
    except yaml.reader.ReaderError as error:
        raise _refused("this character is not allowed", text, file, error.position) from None
    except RecursionError:
        raise _refused("the document is nested too deeply", text, file, 0) from None
    # The library's scanner raises these at an escape of a character that does not exist.
    except (ValueError, OverflowError) as error:
        raise _refused(str(error), text, file, 0) from None
    return _document(data, text=text, file=file)


def load_json(text: str, *, file: str) -> Document:
    """The tree of a JSON document."""
    try:
        data = JsonSource(text).read()
    except Unreadable as error:
        problem = SpecProblem(message=error.message, span=error.span)
        raise invalid([problem], file=file, text=text) from None
    return _document(data, text=text, file=file)


def _refused(message: str, text: str, file: str, at: int) -> SpecInvalid:
    """The error for a document that cannot be read from a position on."""
    at = min(at, len(text))
    line = text.count("\n", 0, at) + 1
    span = SourceSpan(line, at - text.rfind("\n", 0, at), at, at + 1)
    return invalid([SpecProblem(message=message, span=span)], file=file, text=text)


def document_of(data: Mapping[str, Any], *, file: str = "<spec>") -> Document:
    """The tree of stored data."""
    return _document(data, text="", file=file)


def _document(data: Any, *, text: str, file: str) -> Document:
    if not isinstance(data, Mapping):
        message = "a spec is an object with `app` and `queues`"
        raise invalid([SpecProblem(message=message, span=NOWHERE)], file=file, text=text)
    name = data.get("app")
    try:
        body = tuple(
            entry
            for key, value in data.items()
            if key != "app"
            for entry in _entries(key, value, _mark(data, key), 0)
        )
    except Unreadable as error:
        problem = SpecProblem(message=error.message, span=error.span)
        raise invalid([problem], file=file, text=text) from None
    label = _scalar(name, _mark(data, "app")) if isinstance(name, str) else None
    return Document(file=file, text=text, app=SyntaxEntry("app", NOWHERE, NOWHERE, label=label, body=body))


def _mark(data: Any, key: str) -> SourceSpan:
    return data.marks.get(key, NOWHERE) if isinstance(data, Marked) else NOWHERE


def _entries(key: str, value: Any, span: SourceSpan, depth: int) -> list[SyntaxEntry]:
    """The entries of one key of an object. A key with named blocks gives several."""
    if depth > MAX_DEPTH:
        raise Unreadable(f"`{key}` is nested too deep", span)
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
            rest = Marked((name, part) for name, part in value.items() if name != "url")
            rest.marks = getattr(value, "marks", {})
            target = Scalar(ValueKind.URL, str(value.get("url")), "", span)
            return SyntaxEntry(key, span, span, value=target, body=_body(rest, depth))
        case "verify":
            rest = Marked((name, part) for name, part in value.items() if name != "scheme")
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
