"""Every example of the docstrings and of the page runs, with tasks that run where they are pushed."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import weir
from weir import App, TaskContext, TaskHandle
from weir.tasks import middleware
from weir.testing import eager

PAGE = Path(weir.__file__).parents[2] / "docs" / "reference" / "tasks.md"
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PUBLIC = [getattr(weir, name) for name, home in weir._HOMES.items() if home.startswith("tasks.")]


def examples_in(text: str) -> list[str]:
    return FENCE.findall(textwrap.dedent(text))


def documented(owner: Any) -> list[tuple[str, str]]:
    own = [(owner.__name__, inspect.getdoc(owner) or "")]
    if inspect.isclass(owner):
        for name, found in inspect.getmembers(owner):
            if not name.startswith("_") and "```" in (inspect.getdoc(found) or ""):
                own.append((f"{owner.__name__}.{name}", inspect.getdoc(found) or ""))
    return own


@pytest.mark.parametrize("owner", PUBLIC, ids=lambda owner: owner.__name__)
def test_every_public_name_has_an_example(owner: Any) -> None:
    assert [where for where, text in documented(owner) if not examples_in(text)] == []


def names_of(app: App) -> dict[str, Any]:
    """What examples may use without saying where it comes from."""

    @app.task(name="send")
    def send_email(to: str, template: str) -> str:
        return "sent"

    def pass_on(image: str = "", bucket: str = "") -> str:
        return image

    context = TaskContext(task="t", queue="q", message_id="m", attempt=1, headers={})
    public = {name: getattr(weir, name) for name in weir.__all__}
    tasks = {name: app.task(name=f"a {name}")(pass_on) for name in ("resize", "upload", "report")}
    return {
        **public,
        **vars(middleware),
        **tasks,
        "app": app,
        "context": context,
        "send_email": send_email,
        "names": ["a.png"],
        "print": lambda *_: None,
    }


async def run(code: str, names: dict[str, Any]) -> None:
    if re.search(r"^ *return$", code, re.MULTILINE) and "def " not in code:
        # What stands inside a task.
        code = f"def task():\n{textwrap.indent(code, '    ')}\ntask()"
    program = compile(code, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names["__name__"] = "example"
    if program.co_flags & inspect.CO_COROUTINE:
        await eval(program, names)
    else:
        await asyncio.to_thread(exec, program, names)


@pytest.mark.parametrize("owner", PUBLIC, ids=lambda owner: owner.__name__)
async def test_the_examples_of_docstrings_run(owner: Any) -> None:
    for where, text in documented(owner):
        for code in examples_in(text):
            app = App()
            names = names_of(app)
            with eager(app):
                handle: TaskHandle[str] = names["send_email"].push("a@example.com", template="welcome")
                try:
                    await run(code, {**names, "handle": handle})
                except BaseException as error:
                    error.add_note(f"the example of {where}:\n{code}")
                    raise


async def test_the_examples_of_the_page_run() -> None:
    first, *rest = examples_in(PAGE.read_text())
    names = {**names_of(App())}
    await run(first, names)
    app = names["app"]
    names |= {
        name: app.task(name=f"my {name}")(names[name].function) for name in ("resize", "upload", "report")
    }
    for code in rest:
        try:
            if "MemoryTasks(app)" in code:
                await run(code, names)
                continue
            with eager(app):
                await run(code, names)
        except BaseException as error:
            error.add_note(code)
            raise
