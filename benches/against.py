"""Runs a bench of this checkout and of another revision in turns, and compares their figures pair by pair.

A machine's speed drifts while a bench runs. The two runs of a pair follow each other, so that the machine is
about as fast for both, and the order changes from pair to pair.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weir.errors import InvalidInput, Misconfigured

ROOT = Path(__file__).parents[1]
FOLDER = ".bench"
"""Where other revisions are checked out, each with its own environment; later runs use them again."""
RUN_TIMEOUT_S = 3_600

Figures = Mapping[str, float]
"""The numbers of one run; nested numbers have dotted names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The figures of two runs that followed each other."""

    ours: Figures
    theirs: Figures


def compare(
    name: str, *, revision: str, pairs: int, options: Sequence[str] = (), root: Path = ROOT
) -> dict[str, Any]:
    """Run a bench of both revisions in turns, and return for each figure the ratio of ours to theirs."""
    commit = _commit_of(root, revision)
    other = _check_out(root, commit)
    # This makes the environment, so that the first run does not include it.
    _run(other, "--version")
    words = ("bench", name, "--json", *options)
    found = []
    for number in range(pairs):
        turns = (root, other) if number % 2 == 0 else (other, root)
        figures = {folder: figures_in(_run(folder, *words)) for folder in turns}
        found.append(Pair(ours=figures[root], theirs=figures[other]))
    return {"against": commit, "pairs": pairs, "ratios": ratios_of(found)}


def figures_in(output: str) -> dict[str, float]:
    """The figures in the last line that a bench printed."""
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise InvalidInput("the bench printed no figures; run it alone to see why")
    return dict(_flat(json.loads(lines[-1])))


def ratios_of(pairs: Sequence[Pair]) -> dict[str, dict[str, float]]:
    """For each figure that both have: the median, least and greatest ratio, and both medians."""
    names = [
        name for name in pairs[0].ours if all(name in pair.ours and name in pair.theirs for pair in pairs)
    ]
    return {name: _ratio(name, pairs) for name in names if all(pair.theirs[name] for pair in pairs)}


def _ratio(name: str, pairs: Sequence[Pair]) -> dict[str, float]:
    ratios = [pair.ours[name] / pair.theirs[name] for pair in pairs]
    return {
        "median": round(statistics.median(ratios), 3),
        "least": round(min(ratios), 3),
        "most": round(max(ratios), 3),
        "ours": statistics.median(pair.ours[name] for pair in pairs),
        "theirs": statistics.median(pair.theirs[name] for pair in pairs),
    }


def _flat(document: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in document.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append((f"{prefix}{name}", float(value)))
    return found


def _commit_of(root: Path, revision: str) -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode:
        raise Misconfigured(
            f"`{revision}` is not a revision of this checkout; name a commit, tag or branch that is fetched"
        )
    return found.stdout.strip()


def _check_out(root: Path, commit: str) -> Path:
    folder = root / FOLDER / commit[:12]
    if not folder.exists():
        draft = folder.with_suffix(".draft")
        subprocess.run(["rm", "-rf", draft], check=True)
        draft.parent.mkdir(exist_ok=True)
        subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", root, draft], check=True)
        subprocess.run(["git", "checkout", "-q", "--detach", commit], cwd=draft, check=True)
        # Renamed when it is complete, so that an interrupted run leaves no half checkout for the next one.
        draft.rename(folder)
    return folder


def _run(folder: Path, *words: str) -> str:
    run = subprocess.run(
        [str(folder / "weir"), *words],
        cwd=folder, capture_output=True, text=True, check=False, timeout=RUN_TIMEOUT_S,
    )  # fmt: skip
    if run.returncode:
        last = " ".join(run.stderr.strip().splitlines()[-3:])
        raise InvalidInput(f"`{folder / 'weir'} {' '.join(words)}` failed: {last or run.stdout[-300:]}")
    return run.stdout
