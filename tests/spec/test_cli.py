"""`weir spec` without servers, and YAML that would unfold without end."""

from __future__ import annotations

import json

import pytest

from spec.golden import FOLDER
from weir.cli.main import main
from weir.errors import SpecInvalid
from weir.spec.language import read_spec


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["spec", *arguments])
    found = capsys.readouterr()
    return int(ended.value.code or 0), found.out, found.err


def test_check_tells_good_from_bad_by_its_exit_status(capsys):
    assert run(capsys, "check", str(FOLDER / "incidents.weir"))[0] == 0
    status, _, err = run(capsys, "check", str(FOLDER / "bad-types.weir"))
    assert status == 1
    assert "bad-types.weir:5:10: the message has no field `payloda`" in err


def test_check_counts_what_it_read(capsys, tmp_path):
    path = tmp_path / "a.weir"
    path.write_text("app A { queue B {} }")
    assert run(capsys, "check", str(path))[1] == f"{path}: ok (1 queue, 0 webhooks)\n"


def test_check_as_json_gives_places(capsys):
    status, out, _ = run(capsys, "check", "--json", str(FOLDER / "bad-syntax.weir"))
    (found,) = json.loads(out)
    assert (status, found["ok"], found["errors"][0]["line"]) == (1, False, 3)


def test_fmt_rewrites_a_file_once(capsys, tmp_path):
    path = tmp_path / "a.weir"
    path.write_text("app A{queue B{ordering:fifo}} // end")
    assert run(capsys, "fmt", "--check", str(path))[0] == 1
    assert run(capsys, "fmt", str(path))[0] == 0
    assert path.read_text() == "app A {\n  queue B { ordering: fifo }\n}  // end\n"
    assert run(capsys, "fmt", "--check", str(path))[0] == 0


def test_a_file_that_is_not_there_is_one_line(capsys):
    status, _, err = run(capsys, "check", "/nowhere/at/all.weir")
    assert status == 1
    assert err.startswith("weir: `/nowhere/at/all.weir` cannot be read")


def test_a_file_that_is_not_utf_8_is_one_line(capsys, tmp_path):
    path = tmp_path / "a.weir"
    path.write_bytes("app A { queue Zoë {} }".encode("latin-1"))
    status, _, err = run(capsys, "check", str(path))
    assert status == 1
    assert err.startswith(f"weir: `{path}` cannot be read: 'utf-8'")


def test_a_file_of_another_editor_is_read_as_it_was_meant(capsys, tmp_path):
    path = tmp_path / "a.weir"
    path.write_bytes(b"\xef\xbb\xbfapp A {\r\n  queue B{} // end\r\n}\r\n")
    assert run(capsys, "check", str(path))[0] == 0
    assert run(capsys, "fmt", str(path))[0] == 0
    assert path.read_bytes() == b"app A {\n  queue B {}  // end\n}\n"


@pytest.mark.parametrize("text", ["a: &a [x, x]\nb: &b [*a, *a]\napp: A\n", "app: &a [*a]\n"])
def test_aliases_are_refused_before_they_unfold(text):
    with pytest.raises(SpecInvalid, match="is not taken here"):
        read_spec(text, file="bomb.yaml")


def test_an_enormous_yaml_is_refused_at_once():
    with pytest.raises(SpecInvalid, match="at most"):
        read_spec("a: 1\n" * 100_000, file="big.yaml")
