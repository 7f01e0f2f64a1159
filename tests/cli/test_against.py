"""`weir bench --against`: both revisions run in turns, and their figures are compared pair by pair."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benches.against import FOLDER, Pair, compare, figures_in, ratios_of
from weir.errors import InvalidInput, Misconfigured

DOOR = """#!/bin/sh
if [ "$1" = --version ]; then exit 0; fi
echo "$(basename "$PWD")" >> "{log}"
echo 'some words first'
echo '{{"rate": {rate}, "deep": {{"p99_ms": {rate}}}, "ok": true, "name": "x", "zero": 0}}'
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with two commits, whose door answers with other figures in each."""
    root = tmp_path / "checkout"
    root.mkdir()
    _git(root, "init", "-q")
    for rate in (100, 150):
        (root / "weir").write_text(DOOR.format(log=tmp_path / "turns", rate=rate))
        (root / "weir").chmod(0o755)
        _git(root, "add", "weir")
        _git(root, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", str(rate))
    return root


def test_two_revisions_run_in_turns(checkout: Path) -> None:
    found = compare("broker", revision="HEAD~1", pairs=2, options=("--quick",), root=checkout)
    other = found["against"][:12]
    assert found["ratios"]["rate"] == {"median": 1.5, "least": 1.5, "most": 1.5, "ours": 150, "theirs": 100}
    assert found["ratios"]["deep.p99_ms"]["median"] == 1.5
    assert {"ok", "name", "zero"}.isdisjoint(found["ratios"])
    turns = (checkout.parent / "turns").read_text().split()
    assert turns == ["checkout", other, other, "checkout"]
    assert (checkout / FOLDER / other / "weir").exists()


def test_an_unknown_revision_is_named(checkout: Path) -> None:
    with pytest.raises(Misconfigured, match="not a revision"):
        compare("broker", revision="nowhere", pairs=1, root=checkout)


def test_a_bench_that_fails_is_an_error_with_its_last_words(checkout: Path) -> None:
    (checkout / "weir").write_text("#!/bin/sh\necho 'no such bench' >&2\nexit 2\n")
    with pytest.raises(InvalidInput, match="no such bench"):
        compare("nothing", revision="HEAD", pairs=1, root=checkout)


def test_output_without_figures_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no figures"):
        figures_in("words only\n")


def test_the_median_and_the_spread_are_of_the_pairs() -> None:
    pairs = [Pair(ours={"rate": ours}, theirs={"rate": 100}) for ours in (90, 120, 100)]
    assert ratios_of(pairs)["rate"] == {"median": 1.0, "least": 0.9, "most": 1.2, "ours": 100, "theirs": 100}


def _git(root: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=root, check=True)
