"""Every block of code in the documentation is right, also where nobody runs it.

Commands are checked in `tests/cli/test_docs.py`, routes in `tests/api/test_docs.py`. The tutorial and the
guides are followed word for word.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from api.test_docs import methods_of
from dev import ROOT
from support.pages import CodeBlock, code_blocks
from weir.settings import Settings, describe
from weir.spec.language import read_spec

PAGES = sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")))
BLOCKS = [block for page in PAGES for block in code_blocks(page)]
LANGUAGES = {"sh", "python", "weir", "json", "yaml", "toml", "text", "mermaid", "sql", ""}
NOT_SETTINGS = {"WEIR_VENV", "WEIR_PYTHON", "WEIR_WORKER_PYTHON"}
"""Variables that the launcher and the bundle read."""
VARIABLE = re.compile(r"\bWEIR_[A-Z0-9_]*[A-Z0-9]\b")
CURL = re.compile(r"\bcurl\b(?P<words>(?:\\\n|[^\n])*)")
LOCAL = re.compile(r"(?:127\.0\.0\.1:8420|\$WEIR_URL)(?P<path>/[^\s\"'?]*)")
METHOD = re.compile(r"(?:-X|--request) ?([A-Z]+)")


def blocks_in(*languages: str) -> list[CodeBlock]:
    return [block for block in BLOCKS if block.language in languages]


def test_blocks_say_their_language() -> None:
    assert [str(block) for block in BLOCKS if block.language not in LANGUAGES] == []


def test_a_block_that_is_not_run_says_why() -> None:
    assert [str(block) for block in BLOCKS if block.not_run == "no reason is given"] == []


@pytest.mark.parametrize("block", blocks_in("python"), ids=str)
def test_python_compiles_and_what_it_imports_from_weir_exists(block: CodeBlock) -> None:
    tree = compile(block.text, str(block), "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "weir":
            module = import_module(node.module or "")
            missing = [one.name for one in node.names if not _has(module, one.name)]
            assert missing == []


def _has(module: object, name: str) -> bool:
    if hasattr(module, name):
        return True
    try:
        import_module(f"{module.__name__}.{name}")  # type: ignore[attr-defined]
    except ImportError:
        return False
    return True


@pytest.mark.parametrize("block", blocks_in("weir"), ids=str)
def test_specs_are_good(block: CodeBlock) -> None:
    assert read_spec(block.text, file=str(block)).name


@pytest.mark.parametrize("block", blocks_in("json", "yaml", "toml"), ids=str)
def test_documents_can_be_read(block: CodeBlock) -> None:
    read = {"json": json.loads, "yaml": yaml.safe_load, "toml": tomllib.loads}[block.language]
    assert read(block.text)


@pytest.mark.parametrize("block", blocks_in("sh"), ids=str)
def test_shell_can_be_read(block: CodeBlock) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", [block for block in blocks_in("sh") if "curl" in block.text], ids=str)
def test_what_curl_asks_exists(block: CodeBlock) -> None:
    for call in CURL.finditer(block.text):
        words = call["words"].replace("\\\n", " ")
        for found in LOCAL.finditer(words):
            methods = methods_of(found["path"])
            assert methods, f"{found['path']} does not exist"
            asked = METHOD.search(words)
            wanted = asked[1] if asked else "POST" if re.search(r" (-d|--data\S*) ", words) else "GET"
            assert wanted in methods


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_setting_on_the_page_exists(page: Path) -> None:
    known = {variable for variable, _, _ in describe(Settings.model_construct())} | NOT_SETTINGS
    found = set(VARIABLE.findall(_without_old_names(page)))
    assert {name for name in found if name not in known and not _is_prefix(name, page, known)} == set()


def _is_prefix(name: str, page: Path, known: set[str]) -> bool:
    """Whether the page writes `WEIR_API__…`, and there are settings that begin so."""
    text = page.read_text()
    cut = re.findall(rf"{name}_*(?=…)", text)
    return bool(cut) and all(any(one.startswith(start) for one in known) for start in cut)


def _without_old_names(page: Path) -> str:
    """The changelog tells old names as well."""
    return "" if page.name == "CHANGELOG.md" else page.read_text()


@pytest.mark.parametrize(
    ("language", "text", "check"),
    [
        ("python", "from weir import Wier\n", test_python_compiles_and_what_it_imports_from_weir_exists),
        ("weir", "app A { queue {} }\n", test_specs_are_good),
        ("json", "{'a': 1}\n", test_documents_can_be_read),
        ("sh", "for n in 1; do echo\n", test_shell_can_be_read),
        ("sh", "curl http://127.0.0.1:8420/api/v1/quues\n", test_what_curl_asks_exists),
        ("sh", "curl -X PUT http://127.0.0.1:8420/api/v1/push\n", test_what_curl_asks_exists),
    ],
)
def test_what_is_wrong_is_found(language: str, text: str, check: object) -> None:
    block = CodeBlock(page=ROOT / "README.md", line=1, language=language, title="", text=text)
    function = inspect.unwrap(check)  # type: ignore[arg-type]
    with pytest.raises((Exception, AssertionError)):
        function(block)
