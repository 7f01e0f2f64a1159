"""The hooks that MkDocs calls while it builds the site: generated pages, and links out of `docs/`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from dev import ROOT
from dev.reference.pages import GENERATED

_DOCS = ROOT / "docs"
_COPIED = {
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
"""Page of the site -> the page at the root of the checkout that it copies."""
_PAGE_OF = {ROOT / source: page for page, source in _COPIED.items()}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Add the pages that the navigation does not name: the decisions, and new pages of the reference."""
    named = set(_pages_in(config.nav))
    for section, folder in (("Reference", "reference"), ("Explanation", "decisions")):
        found = (path.relative_to(_DOCS).as_posix() for path in sorted((_DOCS / folder).glob("*.md")))
        more = [page for page in found if page not in named]
        (entries,) = (one[section] for one in config.nav if section in one)
        entries += [{"Decisions": more}] if folder == "decisions" else more
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not files below `docs/`."""
    for page, write in GENERATED.items():
        files.append(File.generated(config, page, content=write()))
    for page, source in _COPIED.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links to files of the checkout at their page, or name the file if it has none."""
    return site_links(markdown, page.file.src_uri)


def site_links(markdown: str, page: str) -> str:
    folder = _folder_of(page)
    return _LINK.sub(lambda found: _link(found, folder, page), markdown)


def _folder_of(page: str) -> Path:
    """Where the links of a page start: the folder of its source."""
    return ROOT if page in _COPIED else (_DOCS / page).parent


def _link(found: re.Match[str], folder: Path, page: str) -> str:
    mark, text, target, anchor = found[1], found[2], found[3], found[4] or ""
    path = Path(posixpath.normpath(folder / target))
    if path in _PAGE_OF:
        wanted = _PAGE_OF[path]
    elif path.is_relative_to(_DOCS):
        wanted = path.relative_to(_DOCS).as_posix()
    else:
        return f"{text} (`{path.relative_to(ROOT)}`)"
    return f"{mark}[{text}]({posixpath.relpath(wanted, posixpath.dirname(page) or '.')}{anchor})"


def _pages_in(entry: Any) -> Iterator[str]:
    """The pages that a part of the navigation names."""
    if isinstance(entry, str):
        yield entry
    else:
        for one in entry.values() if isinstance(entry, dict) else entry:
            yield from _pages_in(one)
