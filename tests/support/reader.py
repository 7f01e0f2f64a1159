"""Somebody who follows a page of the documentation word for word, in a folder of their own.

- A block with a file name as its title is written to that file.
- A block of `sh` is typed into a shell. Its exports and its working folder hold for the next block.
- A block of `sh` with the title `Terminal N` runs on in that terminal. A command that runs there already gets
  Ctrl-C first.
- A block of `text` after a command is the output of that command. After a terminal, it is a part of what that
  terminal prints. In the block, `…` stands for anything, also for whole lines.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.pages import CodeBlock, code_blocks
from support.waiting import wait_until

PORTS = ("8420", "8300", "8025", "8426")
"""The ports that pages and examples name, the port of the API first; a reader uses others."""
_PATIENCE_S = 90.0
_STOP_S = 60.0
_TERMINAL = re.compile(r"Terminal \d+")
_LAST_WORDS = 3_000


@dataclass(slots=True)
class Terminal:
    """A command that runs on, and what it printed."""

    process: subprocess.Popen[bytes]
    log: Path

    def shown(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> bool:
        """Send Ctrl-C to everything that runs in the terminal; return whether that ended it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=_STOP_S)
            return True
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return False


@dataclass(slots=True)
class Reader:
    """Follows pages in one folder, one after the other."""

    folder: Path
    ports: tuple[int, ...]
    """The free ports that replace `PORTS`."""
    environment: dict[str, str]
    terminals: dict[str, Terminal] = field(default_factory=dict)
    first_match_s: float = 0.0
    """When the output of a command was first as the page says."""
    _printed: str = ""
    _last: CodeBlock | None = None

    def follow(self, page: Path) -> int:
        """Do what the page says; return the number of blocks that were followed."""
        return self.follow_blocks([block for block in code_blocks(page) if not block.not_run])

    def follow_blocks(self, blocks: list[CodeBlock]) -> int:
        for block in blocks:
            try:
                self._follow(block)
            except BaseException as error:
                error.add_note(f"{block}:\n{block.text}")
                raise
            self._last = block
        return len(blocks)

    def close(self) -> None:
        """Send Ctrl-C to every terminal, the last one first."""
        stubborn = [name for name in reversed(list(self.terminals)) if not self.terminals[name].stop()]
        self.terminals.clear()
        assert stubborn == [], "Ctrl-C did not end what ran there"

    def _follow(self, block: CodeBlock) -> None:
        match block.language:
            case "sh" if _TERMINAL.fullmatch(block.title):
                self._open_terminal(block)
            case "sh":
                self._printed = "" if block.repeated else self.type(block.text)
            case "text":
                self._compare(block)
            case _ if block.title:
                self._write(block)

    def _write(self, block: CodeBlock) -> None:
        file = self.folder / block.title
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.spelled(block.text))

    def type(self, text: str) -> str:
        """Run lines in the shell; return what they printed on standard output."""
        state = self.folder / ".shell"
        keep = f"{{ export -p; echo cd \"$PWD\"; }} >'{state}'"
        script = f"[ -f '{state}' ] && . '{state}'\n{self.spelled(text)}\n{keep}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=_PATIENCE_S,
        )  # fmt: skip
        said = f"{done.stdout[-_LAST_WORDS:]}{done.stderr[-_LAST_WORDS:]}{self._last_words()}"
        assert done.returncode == 0, f"status {done.returncode}: {said}"
        return done.stdout

    def _open_terminal(self, block: CodeBlock) -> None:
        if block.title in self.terminals:
            assert self.terminals.pop(block.title).stop(), f"Ctrl-C did not end what ran in {block.title}"
        state, log = self.folder / ".shell", self.folder / f".{block.title.replace(' ', '-').lower()}.log"
        script = f"[ -f '{state}' ] && . '{state}'\n{self.spelled(block.text)}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                # If the tests run in the background, Ctrl-C is ignored, and children inherit that.
                ["env", "--default-signal=INT", "bash", "-eu", "-c", script],
                cwd=self.folder, env=self.environment, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        self.terminals[block.title] = Terminal(process=process, log=log)

    def _compare(self, block: CodeBlock) -> None:
        expected = self.spelled(block.text)
        last = self._last
        if last is not None and last.title in self.terminals:
            terminal = self.terminals[last.title]
            wait_until(
                lambda: prints_within(expected, terminal.shown()) or terminal.process.poll() is not None,
                timeout_s=_PATIENCE_S, what=f"these lines in {last.title}",
            )  # fmt: skip
            assert prints_within(expected, terminal.shown()), terminal.shown()[-_LAST_WORDS:]
        elif last is not None and last.repeated:
            self._wait_for(expected, last)
        else:
            assert prints(expected, self._printed), f"printed:\n{self._printed}"
            self.first_match_s = self.first_match_s or time.monotonic()

    def _wait_for(self, expected: str, block: CodeBlock) -> None:
        give_up_s = time.monotonic() + _PATIENCE_S
        while not prints(expected, self._printed):
            assert time.monotonic() < give_up_s, f"printed at last:\n{self._printed}"
            self._printed = self.type(block.text)

    @property
    def port(self) -> int:
        """The port of the API."""
        return self.ports[0]

    def spelled(self, text: str) -> str:
        """The text with the ports of this reader."""
        for named, own in zip(PORTS, self.ports, strict=True):
            text = text.replace(named, str(own))
        return text

    def _last_words(self) -> str:
        return "".join(f"\n{name}:\n{one.shown()[-_LAST_WORDS:]}" for name, one in self.terminals.items())


def prints(expected: str, printed: str) -> bool:
    """Whether the output is the expected one."""
    return re.fullmatch(_pattern(expected), printed.strip(), re.DOTALL) is not None


def prints_within(expected: str, printed: str) -> bool:
    """Whether a part of the output is the expected one."""
    return re.search(_pattern(expected), printed, re.DOTALL) is not None


def _pattern(expected: str) -> str:
    lines = (re.escape(line.rstrip()).replace("…", ".*?") for line in expected.strip().splitlines())
    return r"[ \t]*\n".join(line.replace(r"\ \ ", r"\ +") for line in lines)


def command_folder(folder: Path) -> Path:
    """Make a folder for PATH with the `weir` and the `python` of this checkout."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, words in (("weir", "-m weir.cli "), ("python", "")):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
        script.chmod(0o755)
    return folder
