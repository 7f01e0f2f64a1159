"""The joints of the spec language, written out as text; `python tests/spec/golden.py` renews the files.

For each spec beside this module: `NAME.syntax` (the tree), `NAME.ir.json` (the checked IR), `NAME.fmt` (the
formatted text) and `NAME.plan` (what applying it to nothing changes), or `NAME.error` if it does not check.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from weir.errors import SpecInvalid
from weir.spec.dump import dumped
from weir.spec.fmt import formatted
from weir.spec.language import checked, read_document
from weir.spec.plan import plan, rendered_plan
from weir.spec.syntax import Condition, JsonValue, Listing, SyntaxEntry, Value

FOLDER = Path(__file__).parent / "golden"
SOURCES = sorted(
    path
    for path in FOLDER.iterdir()
    if path.suffix in (".weir", ".yaml", ".json") and ".ir" not in path.suffixes
)


def joints(source: Path) -> dict[str, str]:
    """What each joint says about one spec, by the ending of its golden file."""
    text = source.read_text()
    try:
        document = read_document(text, file=source.name)
        app = checked(document)
    except SpecInvalid as error:
        return {"error": error.message + "\n"}
    found = {
        "syntax": "\n".join(_outline(document.app, 0)) + "\n",
        "ir.json": json.dumps(dumped(app), indent=2, ensure_ascii=False) + "\n",
        "plan": rendered_plan(plan(None, app, {})) + "\n",
    }
    if source.suffix == ".weir":
        found["fmt"] = formatted(document)
    return found


def _outline(entry: SyntaxEntry, depth: int) -> Iterator[str]:
    span = entry.span
    parts = [entry.key, *([repr(entry.label.value)] if entry.label else []), *_values(entry.value)]
    yield f"{span.line}:{span.column} {'  ' * depth}{' '.join(parts)}"
    for item in entry.body or ():
        yield from _outline(item, depth + 1)


def _values(value: Value | None) -> list[str]:
    match value:
        case None:
            return []
        case Listing():
            return [f"{item.kind.name}={item.value!r}" for item in value.items]
        case Condition():
            return [f"{value.metric.value} {value.operator} {value.threshold.value}"]
        case JsonValue():
            return [f"JSON={value.value!r}"]
    return [f"{value.kind.name}={value.value!r}"]


if __name__ == "__main__":
    for path in SOURCES:
        for ending, text in joints(path).items():
            (FOLDER / f"{path.stem}.{ending}").write_text(text)
