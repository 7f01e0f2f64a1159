"""Reads one block: each property by its name and kind. Every mistake is noted with its position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weir.errors import InvalidInput
from weir.model.durations import written_ms
from weir.model.limits import MAX_COUNT, MAX_SPAN_MS
from weir.model.names import check_name
from weir.model.wording import duration
from weir.spec.spec_problems import (
    MAX_HINTED,
    MAX_PROBLEMS,
    Near,
    SpecProblem,
    nearest,
    one_of,
)
from weir.spec.syntax import Listing, Scalar, SourceSpan, SyntaxEntry, ValueKind

Path = tuple[str, ...]
MAX_NUMBER = MAX_COUNT
_TEXTS = (
    ValueKind.STRING,
    ValueKind.WORD,
    ValueKind.URL,
    ValueKind.PATH,
    ValueKind.TYPE,
    ValueKind.EXPRESSION,
)


class EnoughMistakes(Exception):
    """So many mistakes that the reading ends. `spec.language` catches it, so it is not in the error tree."""


class Notes:
    """The mistakes so far, and the source position of each part of the result."""

    def __init__(self, *, lenient: bool = False) -> None:
        """`lenient`: note nothing."""
        self._lenient = lenient
        self.problems: list[SpecProblem] = []
        self.spans: dict[Path, SourceSpan] = {}

    def add(self, message: str, span: SourceSpan, *, near: Near | None = None) -> None:
        """Note a mistake. `near` is a wrong word with the known words, for a hint."""
        if self._lenient:
            return
        hint = nearest(*near) if near and len(self.problems) < MAX_HINTED else ""
        self.problems.append(SpecProblem(message=message, span=span, hint=hint))
        if len(self.problems) == MAX_PROBLEMS:
            raise EnoughMistakes


class SpecSection:
    """The entries of one block. `finish` reports entries that no property asked for."""

    def __init__(self, entries: Sequence[SyntaxEntry], *, what: str, path: Path, notes: Notes) -> None:
        self.what = what
        self.path = path
        self.notes = notes
        self._asked: list[str] = []
        self._single: dict[str, SyntaxEntry] = {}
        self._entries = entries
        self._repeated: list[SyntaxEntry] = []
        for entry in entries:
            if entry.key in self._single:
                self._repeated.append(entry)
            else:
                self._single[entry.key] = entry

    def take(self, key: str) -> SyntaxEntry | None:
        """The entry of that name, if there is one. Its position is noted."""
        self._asked.append(key)
        entry = self._single.get(key)
        if entry is not None:
            self.notes.spans[(*self.path, key)] = entry.value.span if entry.value else entry.key_span
        return entry

    def every(self, key: str) -> list[SyntaxEntry]:
        """All entries of a name that may come more than once."""
        self._asked.append(key)
        self._repeated = [entry for entry in self._repeated if entry.key != key]
        return [entry for entry in self._entries if entry.key == key]

    def body(self, key: str, *, what: str | None = None) -> SpecSection | None:
        """The block of that name as a section of its own."""
        entry = self.take(key)
        if entry is None:
            return None
        if entry.body is None or entry.value is not None:
            self.notes.add(f"`{key}` is a block; write `{key} {{ … }}`", entry.key_span)
            return None
        return SpecSection(entry.body, what=what or key, path=(*self.path, key), notes=self.notes)

    def scalar(self, key: str, kinds: Iterable[ValueKind], *, expected: str) -> Scalar | None:
        entry = self.take(key)
        if entry is None:
            return None
        if isinstance(entry.value, Scalar) and entry.value.kind in kinds and entry.body is None:
            return entry.value
        span = entry.value.span if entry.value else entry.key_span
        self.notes.add(f"`{key}` is wrong here; expected {expected}", span)
        return None

    def whole(self, key: str, *, at_least: int = 0, at_most: int = MAX_NUMBER) -> int | None:
        """A whole number within bounds."""
        value = self.scalar(key, (ValueKind.NUMBER,), expected="a whole number")
        if value is None:
            return None
        if not isinstance(value.value, int) or not at_least <= value.value <= at_most:
            self.notes.add(
                f"`{key}` is {value.text}; expected a whole number from {at_least} to {at_most}", value.span
            )
            return None
        return value.value

    def ratio(self, key: str) -> float | None:
        value = self.scalar(key, (ValueKind.NUMBER,), expected="a number from 0 to 1")
        if value is None:
            return None
        if not isinstance(value.value, (int, float)) or not 0 <= value.value <= 1:
            self.notes.add(f"`{key}` is {value.text}; expected a number from 0 to 1", value.span)
            return None
        return float(value.value)

    def duration_ms(self, key: str, *, at_least_ms: int = 1, at_most_ms: int = MAX_SPAN_MS) -> int | None:
        """A duration, written as `key: 24h`, `key_seconds: 86400` or `key_ms: 86400000`."""
        found = (
            (self._written_duration(key), 1),
            (self.scalar(f"{key}_seconds", (ValueKind.NUMBER,), expected="a number of seconds"), 1_000),
            (self.scalar(f"{key}_ms", (ValueKind.NUMBER,), expected="a number of milliseconds"), 1),
        )
        given = [(value, factor) for value, factor in found if value is not None]
        if not given:
            return None
        if len(given) > 1:
            self.notes.add(f"`{key}` is given twice in different units; keep one", given[1][0].span)
        value, factor = given[0]
        result = round(float(value.value) * factor)
        self.notes.spans[(*self.path, key)] = value.span
        if not at_least_ms <= result <= at_most_ms:
            self.notes.add(
                f"`{key}` is {value.text}; expected at least {duration(at_least_ms)} and at most "
                f"{'ten years' if at_most_ms == MAX_SPAN_MS else duration(at_most_ms)}",
                value.span,
            )
            return None
        return result

    def _written_duration(self, key: str) -> Scalar | None:
        """A duration such as `30s`. YAML and JSON have no literal for it, so a text is taken too."""
        expected = "a duration such as `30s`"
        value = self.scalar(key, (ValueKind.DURATION, ValueKind.STRING), expected=expected)
        if value is None or value.kind is ValueKind.DURATION:
            return value
        milliseconds = written_ms(str(value.value))
        if milliseconds is None:
            self.notes.add(f"`{key}` is wrong here; expected {expected}", value.span)
            return None
        return Scalar(ValueKind.DURATION, milliseconds, value.text, value.span)

    def text(self, key: str) -> str | None:
        value = self.scalar(key, _TEXTS, expected="a text")
        return None if value is None else str(value.value)

    def secret_names(self) -> tuple[str, ...]:
        """The secrets of the environment that `secret` names; `secret_env` is what it was called before."""
        names, before = self.texts("secret"), self.texts("secret_env")
        if names and before:
            self.notes.add("`secret_env` is now `secret`; keep `secret`", self._single["secret_env"].key_span)
        # Where a mistake in a name is shown.
        if before and (*self.path, "secret_env") in self.notes.spans:
            self.notes.spans[(*self.path, "secret")] = self.notes.spans[(*self.path, "secret_env")]
        return names or before

    def texts(self, key: str) -> tuple[str, ...]:
        """One text, or a list of them."""
        entry = self.take(key)
        if entry is None:
            return ()
        values = entry.value.items if isinstance(entry.value, Listing) else (entry.value,)
        if not values or not all(isinstance(value, Scalar) and value.kind in _TEXTS for value in values):
            span = entry.value.span if entry.value else entry.key_span
            self.notes.add(f"`{key}` is wrong here; expected a text or a list of texts", span)
            return ()
        return tuple(str(value.value) for value in values if isinstance(value, Scalar))

    def name(self, key: str) -> str | None:
        """The name of a queue, as a word or in quotes."""
        value = self.scalar(key, (ValueKind.WORD, ValueKind.STRING), expected="a name")
        return None if value is None else read_name(value, what=key, notes=self.notes)

    def flag(self, key: str) -> bool | None:
        value = self.scalar(key, (ValueKind.FLAG,), expected="`true` or `false`")
        return None if value is None else bool(value.value)

    def choice(self, key: str, choices: Iterable[str]) -> str | None:
        """One of a closed list of words."""
        value = self.scalar(key, (ValueKind.WORD, ValueKind.STRING), expected=one_of(choices))
        if value is None:
            return None
        known = list(choices)
        if value.value not in known:
            self.notes.add(
                f"`{key}` is `{value.value}`; expected {one_of(known)}",
                value.span,
                near=(str(value.value), known),
            )
            return None
        return str(value.value)

    def finish(self) -> None:
        """Note the entries that do not belong here, and the entries that come twice."""
        for entry in self._entries:
            if entry.key not in self._asked:
                self.notes.add(
                    f"`{entry.key}` does not belong in {_article(self.what)}; it takes "
                    f"{one_of(sorted(set(self._shown())))}",
                    entry.key_span,
                    near=(entry.key, self._asked),
                )
        for entry in self._repeated:
            if entry.key in self._asked:
                self.notes.add(f"`{entry.key}` stands twice in this {self.what}; keep one", entry.key_span)

    def _shown(self) -> list[str]:
        """The properties of this block, each duration once."""
        return [
            key
            for key in self._asked
            if not (key.endswith(("_seconds", "_ms")) and key.rsplit("_", 1)[0] in self._asked)
        ]


def read_name(scalar: Scalar, *, what: str, notes: Notes) -> str | None:
    """The name in a scalar; None, with a note, if it is not a legal name."""
    try:
        return check_name(str(scalar.value), what=what)
    except InvalidInput as error:
        notes.add(error.message, scalar.span)
        return None


def _article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def named_blocks(section: SpecSection, kind: str) -> list[SyntaxEntry]:
    """The blocks of one kind. A block without a name, or with the name of another, is noted and left out."""
    seen: dict[str, SyntaxEntry] = {}
    for entry in section.every(kind):
        name = label_of(entry, kind, section.notes)
        if entry.body is None or entry.value is not None:
            section.notes.add(f"`{kind}` is a block; write `{kind} Name {{ … }}`", entry.key_span)
        elif name is not None and name in seen:
            first = seen[name].span.line
            section.notes.add(
                f"{kind} `{name}` is defined twice; the first one is in line {first}", entry.key_span
            )
        elif name is not None:
            seen[name] = entry
    return list(seen.values())


def label_of(entry: SyntaxEntry, kind: str, notes: Notes) -> str | None:
    if entry.label is None:
        notes.add(f"this {kind} has no name; write `{kind} Name {{ … }}`", entry.key_span)
        return None
    return read_name(entry.label, what=kind, notes=notes)


def open_block(entry: SyntaxEntry, kind: str, notes: Notes, path: Path) -> tuple[str, SpecSection]:
    label = entry.label
    name = str(label.value) if label is not None else ""
    notes.spans[(*path, name)] = label.span if label is not None else entry.key_span
    return name, SpecSection(entry.body or (), what=kind, path=(*path, name), notes=notes)
