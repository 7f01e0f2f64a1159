"""The generated pages of the reference name everything that there is."""

from __future__ import annotations

import re

import pytest
from pydantic import BaseModel

import weir
from dev.reference.commands import commands_page
from dev.reference.errors import errors_page
from dev.reference.pages import GENERATED
from dev.reference.python import python_page
from dev.reference.routes import routes_page
from dev.reference.settings import settings_page
from dev.site_hooks import site_links
from weir.api.app import describe as describe_api
from weir.errors import WeirError
from weir.settings import Settings, describe


def test_every_setting_is_described_in_words() -> None:
    page = settings_page()
    assert [name for name, _, _ in describe(Settings.model_construct()) if f"| `{name}` |" not in page] == []
    sections = [Settings, *(type(one) for one in _defaults(Settings) if isinstance(one, BaseModel))]
    silent = [f"{one.__name__}.{name}" for one in sections for name, field in one.model_fields.items()
              if not field.description and not isinstance(field.default, BaseModel)]  # fmt: skip
    assert silent == []


def _defaults(model: type[BaseModel]) -> list[object]:
    return [field.default for field in model.model_fields.values()]


def test_every_route_has_a_section_with_a_request() -> None:
    page = routes_page()
    for path, methods in describe_api()["paths"].items():
        for method in methods:
            _, _, section = page.partition(f"### `{method.upper()} {path}`\n")
            assert section, f"{method} {path} is not there"
            assert "curl" in section.partition("\n### ")[0]


def test_every_command_has_a_section_with_its_options() -> None:
    page = commands_page()
    assert "### weir queue push\n" in page
    assert "#### weir dlq task pause\n" in page
    assert "`--idempotency-key <str>`" in page
    assert "weir test" not in page


def test_every_error_and_every_public_name_is_told() -> None:
    codes = {error.code for error in _below(WeirError) if error.__module__ == "weir.errors"}
    assert [code for code in codes if f"| `{code}` |" not in errors_page()] == []
    assert [name for name in weir.__all__ if f"### weir.{name}\n" not in python_page()] == []


def _below(root: type[WeirError]) -> list[type[WeirError]]:
    return [found for child in root.__subclasses__() for found in (child, *_below(child))]


@pytest.mark.parametrize("write", GENERATED.values(), ids=GENERATED)
def test_a_generated_page_is_markdown_without_holes(write: object) -> None:
    text = write()  # type: ignore[operator]
    assert text.startswith("# ")
    assert text.count("```") % 2 == 0
    assert re.findall(r"\bNone\b \|", text) == []


def test_links_out_of_the_docs_name_the_file_and_others_lead_to_pages() -> None:
    text = "[a](../../deploy/compose.yaml) [b](../../CHANGELOG.md#x) [c](http.md#limits) [d](https://e.org)"
    assert site_links(text, "reference/deploy.md") == (
        "a (`deploy/compose.yaml`) [b](../changelog.md#x) [c](http.md#limits) [d](https://e.org)"
    )
    assert site_links("[g](docs/glossary.md)", "architecture.md") == "[g](glossary.md)"
