"""Odd and hostile specs: each is a mistake with its line and column, and costs little."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from weir.cli.spec import app
from weir.errors import SpecInvalid
from weir.serve.spec_checks import SPEC_CHECKS
from weir.spec.bounds import MAX_CONSUMERS, MAX_FIELDS
from weir.spec.dump import dumped
from weir.spec.fmt import formatted
from weir.spec.language import checked, read_document, read_spec, spec_of
from weir.spec.parse import one_line, parse
from weir.spec.spec_problems import MAX_HINTED, MAX_MESSAGE, MAX_PROBLEMS

HALF = "\ud800"


def refusal(text: str, file: str = "a.weir") -> SpecInvalid:
    with pytest.raises(SpecInvalid) as caught:
        read_spec(text, file=file)
    return caught.value


def seconds_of(text: str, file: str = "a.weir") -> float:
    """The processor time that reading takes, whether the spec is good or not."""
    started = time.process_time()
    with suppress(SpecInvalid):
        read_spec(text, file=file)
    return time.process_time() - started


YAML = "app: A\nqueues:\n  q:\n    concurrency: {}\n"
JSON = '{{"app": "A", "queues": {{"q": {{"concurrency": {}}}}}}}'
TEXT = "app A {{ queue q {{ concurrency: {} }} }}"
ODD = [
    *((form, number) for form in (JSON, TEXT) for number in ("1e400", "9" * 400, "-1e400", "1." + "9" * 400)),
    *(
        (JSON, word)
        for word in ("NaN", "Infinity", '"' + "\\ud800" + '"', '"\\u0000"', "[" * 5_000, "tru", "")
    ),
    *((YAML, number) for number in (".inf", ".nan", "9" * 400, "0x" + "f" * 200_000, "0" + "7" * 200_000)),
    *((YAML, odd) for odd in ("1" + ":59" * 30_000, "!!int ''", "!!float ''", "!!int _", "!!bool no way")),
    *((YAML, odd) for odd in ("!!timestamp x", "!!set {a: 1}", "!!binary '*'", '"\\ud800"', '"\\UFFFFFFFF"')),
    *((YAML, odd) for odd in ("!!map 3", "!!seq {}", "!!str [1]", "!!null 5", "*gone", "\x07", "[" * 5_000)),
    (TEXT, f'"{HALF}"'),
    (TEXT, '"a" // \x00'),
]


@pytest.mark.parametrize(("form", "odd"), ODD, ids=lambda value: repr(value)[:30])
def test_an_odd_value_is_a_mistake_with_its_line_and_column(form: str, odd: str) -> None:
    file = {YAML: "a.yaml", JSON: "a.json", TEXT: "a.weir"}[form]
    found = refusal(form.format(odd), file)
    assert re.match(rf"{file}:\d+:\d+: ", found.message), found.message[:300]
    assert "cannot be read: " not in found.message
    json.dumps(found.extra, ensure_ascii=False).encode()
    found.message.encode()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"app": "A",\n "queues": {"q": {\n   "concurrency": 0}}}', "a.json:3:4"),
        ('{"app": "A",\n "queues": {"q": {}, "q": {}}}', "a.json:2:22"),
        ('{"app": "A",\n "queues": }', "a.json:2:12"),
    ],
)
def test_a_mistake_in_json_names_its_line_and_column(text: str, place: str) -> None:
    assert refusal(text, "a.json").message.startswith(place)


def test_half_a_character_in_a_name_or_in_a_payload_is_a_mistake() -> None:
    schedule = '{"app":"A","queues":{"q":{}},"schedules":{"s":{"every_ms":1000,"queue":"q","payload":%s}}}'
    for payload in (
        '{"a":"\\ud800"}',
        '{"\\udfff":1}',
        '["\\ud800\\ud800"]',
        "1e400",
        '[{"a":[' + "9" * 30 + "]}]",
    ):
        assert "payload" in refusal(schedule % payload, "a.json").message
    assert read_spec(schedule % '{"a":"\\ud83e\\udd8a \\u0000"}', file="a.json").schedules[0].payload == {
        "a": "🦊 \x00"
    }
    text = 'app A { queue q {} schedule s { every: 1s, queue: q, payload: { a: "\\ud83e\\udd8a" } } }'
    assert read_spec(text).schedules[0].payload == {"a": "🦊"}
    refusal(text.replace("\\udd8a", ""))


def test_mistakes_are_counted_and_end_the_reading_at_a_bound() -> None:
    fields = " ".join(f"f{n}: int" for n in range(5_000))
    queues = " ".join(f"queue q{n} {{ enqueue: t }}" for n in range(3_000))
    found = refusal(
        f"app A {{ queue t {{ message_type {{ {fields} }} }} {queues} }}".replace(
            "enqueue: t", "enqueue: t { x: 1 }"
        )
    )
    assert len(found.extra["errors"]) == MAX_PROBLEMS
    assert found.message.endswith("… and more")
    assert len(found.message) < 100_000


def test_only_the_first_mistakes_get_a_hint_and_long_names_get_none() -> None:
    known = " ".join(f"queue name{n} {{}}" for n in range(30))
    wrong = " ".join(f"queue w{n} {{ enqueue: nme{n} }}" for n in range(60))
    errors = refusal(f"app A {{ {known} {wrong} }}").extra["errors"]
    hints = [one["hint"] for one in errors]
    assert all(hints[:MAX_HINTED]), hints
    assert not any(hints[MAX_HINTED:]), hints
    long = "n" * 100
    assert (
        refusal(f"app A {{ queue {long}a {{}} queue b {{ enqueue: {long}b }} }}").extra["errors"][0]["hint"]
        == ""
    )


def test_a_hint_is_found_among_more_names_than_are_compared() -> None:
    names = " ".join(f"queue z{n} {{}}" for n in range(400))
    found = refusal(f"app A {{ {names} queue Orders {{}} queue b {{ enqueue: Oders }} }}")
    assert found.extra["errors"][0]["hint"] == "did you mean `Orders`?"


def test_a_message_is_cut_however_long_a_name_in_it_is() -> None:
    for text in (
        "app A { " + "x" * 300_000 + ": 1 }",
        "app A { queue q { ordering: " + "x" * 300_000 + " } }",
    ):
        assert len(refusal(text).extra["errors"][0]["detail"]) <= MAX_MESSAGE + 1


def test_a_circle_of_many_queues_is_spelled_in_short() -> None:
    names = [f"queue_with_a_long_name_{n}" for n in range(4_000)]
    text = (
        "app A { "
        + " ".join(
            f"queue {a} {{ enqueue: {b} }}" for a, b in zip(names, [*names[1:], names[0]], strict=True)
        )
        + "}"
    )
    (error,) = refusal(text).extra["errors"]
    assert "(3993 more) → `queue_with_a_long_name_0`" in error["detail"]


@pytest.mark.parametrize("quote", ['\\"', "\\'"])
def test_an_open_quote_is_read_in_time_that_grows_with_its_length(quote: str) -> None:
    started = time.process_time()
    for _ in range(50):
        one_line('"' + quote * 5_000)
    assert time.process_time() - started < 1
    inputs = json.dumps({f"i{n}": '"' + quote * 30_000 for n in range(5)})
    text = f'{{"app":"A","queues":{{"q":{{"map_to":{{"entity":"E","command":"C","inputs":{inputs}}}}}}}}}'
    assert seconds_of(text, "a.json") < 2


HEAVY = {
    "unknown names beside similar ones": "app A {"
    + " ".join(
        f"queue {'n' * 190}{n:04} {{}} queue m{n} {{ enqueue: {'n' * 190}x{n:04} }}" for n in range(79)
    )
    + "}",
    "unknown properties": "app A { "
    + " ".join(f"p{n}: 1" for n in range(4_900))
    + " queue q { "
    + " ".join(f"p{n}: 1" for n in range(50_000))
    + " } }",
    "one target with many optional fields": "app A { queue t { message_type { "
    + " ".join(f"f{n}: int?" for n in range(15_000))
    + " } } "
    + " ".join(f"queue q{n} {{ enqueue: t {{ f0: 1 }} }}" for n in range(400))
    + "}",
    "open brackets": "app A { queue q { map_to: command E.C { x: " + "(" * 500_000,
    "digits": "app A { queue q { concurrency: " + "1" * 900_000 + " } }",
}


@pytest.mark.parametrize("name", HEAVY)
def test_a_hostile_spec_costs_little(name: str) -> None:
    assert seconds_of(HEAVY[name]) < 8


def test_consumers_fields_and_inputs_are_bounded() -> None:
    consumers = " ".join(f"consumer c{n} {{ queue: q{n} }}" for n in range(MAX_CONSUMERS + 1))
    assert (
        f"at most {MAX_CONSUMERS:,} consumers" in refusal(f"app A {{ channel c {{ {consumers} }} }}").message
    )
    half = " ".join(f"f{n}: int" for n in range(MAX_FIELDS // 2))
    fields = f"queue a {{ message_type {{ {half} }} }} queue b {{ message_type {{ {half} one: int }} }}"
    assert f"at most {MAX_FIELDS:,} fields and inputs" in refusal(f"app A {{ {fields} }}").message
    groups = " ".join(
        f"channel c{c} {{ " + " ".join(f"consumer i{n} {{ queue: q }}" for n in range(999)) + " }"
        for c in range(6)
    )
    assert "at most 5,000 parts" in refusal(f"app A {{ queue q {{}} {groups} }}").message


_WORDS = """
app queue q { } [ ] : , " ' \\ // ( 1e400 1e-05 - 0x1F 1:30 !!int !!set ? &a *a % | > ~ \\ud800 \\u0000 NaN
30s
null https://[ message_type map_to enqueue deliver payload webhook channel consumer alert when schedule cron
list<
timezone every history log "queues" "app" "A" "webhooks" "alerts" "payload" queues:
"""
_PHRASES = ("command E.C", "verify stripe", "backlog > 5", '"* * * * *"', "app: A", "map<string, ", "1 in 10")
_ODD = (" ", "\n", "\t", HALF, "\x00", "? ", "- ", "9" * 30, "9" * 400 + "s", "!!float ''")
PIECES = st.sampled_from([*_WORDS.split(), *_PHRASES, *_ODD])
_KEYS = """
queues webhooks channels alerts schedules consumers delivery retention verify scheme secret_env tolerance
map_to
entity command inputs enqueue queue q deliver url timeout message_type when metric operator threshold payload
cron timezone every every_ms history log log_ms key window name lease_seconds max_age priority jitter ordering
concurrency x
"""
KEYS = _KEYS.split()
LEAVES = ["1 in 2", "30s", "backlog > nan", "https://[", "E.C", "hmac", HALF, "q", "int?", ">", "\x00"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.sampled_from(LEAVES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=25,
)
FILES = st.sampled_from(["a.weir", "a.json", "a.yaml"])


def read_strictly(text: str, file: str) -> None:
    """Read without the net for what nobody thought of: only SpecInvalid may come out."""
    mistake = None
    try:
        checked(read_document(text, file=file))
    except SpecInvalid as error:
        mistake = error
    if mistake is not None:
        (mistake.message + str(mistake.extra["errors"])).encode()
        assert re.match(rf"{re.escape(file)}:\d+:\d+: ", mistake.message), mistake.message


@given(pieces=st.lists(PIECES, max_size=40), file=FILES)
@settings(max_examples=500, deadline=None)
def test_no_pieces_of_specs_crash_a_reader(pieces: list[str], file: str) -> None:
    read_strictly("".join(pieces), file)
    read_strictly(" ".join(pieces), file)


@given(value=VALUES, at_top=st.booleans(), file=st.sampled_from(["a.json", "a.yaml"]))
@settings(max_examples=500, deadline=None)
def test_no_values_in_any_place_crash_a_reader(value: object, at_top: bool, file: str) -> None:
    parts = value if isinstance(value, dict) else {"queues": value}
    data = parts if at_top else {"queues": {"q": value}, "webhooks": {"w": value}, "alerts": {"a": value}}
    read_strictly(json.dumps({"app": "A", **data, "schedules": {"s": value}}), file)


SCHEMES = {
    "verify_hmac": ("timestamp_header", "tolerance", "encoding", "prefix"),
    "verify github": ("algorithm", "timestamp_header", "header", "tolerance"),
    "verify stripe": ("algorithm", "prefix"),
}
VALUES_OF = {"tolerance": "60s", "encoding": "base64", "algorithm": "sha512"}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_option_that_a_scheme_does_not_read_is_a_mistake(scheme: str) -> None:
    header = 'header: "X-Signature"' if scheme == "verify_hmac" else ""
    text = f'app A {{ queue q {{}} webhook w {{ queue: q {scheme} {{ secret: "S" {header} %s }} }} }}'
    assert spec_of(dumped(read_spec(text % ""))) == read_spec(text % "")
    assert read_spec(json.dumps(dumped(read_spec(text % ""))), file="a.json") == read_spec(text % "")
    for option in SCHEMES[scheme]:
        value = VALUES_OF.get(option, '"x"')
        found = refusal(text % f"{option}: {value}")
        assert f"`{option}` does not belong in a" in found.message


@pytest.mark.parametrize("number", ["0.00001", "1e-05", "1e20", "100000000000000000.0", "12.5E+3"])
def test_a_number_is_formatted_as_it_is_read_again(number: str) -> None:
    text = f"app A {{ queue q {{}} schedule s {{ every: 1s, queue: q, payload: {{ a: {number} }} }} }}"
    once = formatted(parse(text))
    assert formatted(parse(once)) == once
    assert read_spec(once) == read_spec(text)
    assert read_spec(once).schedules[0].payload == {"a": float(number)}


def test_formatting_writes_a_file_whole_with_its_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.weir"
    path.write_text("app   A { queue   Größe {} }", encoding="utf-8")
    path.chmod(0o640)
    monkeypatch.setenv("LC_ALL", "C")
    assert CliRunner().invoke(app, ["fmt", str(path)]).exit_code == 0
    assert "queue Größe {}" in path.read_text(encoding="utf-8")
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in tmp_path.iterdir()] == ["a.weir"]


REFUSED_BY_OTHERS = {
    "alert x { when: foo > 5 }": "when",
    "alert x { when: backlog > 5, window: 1s }": "window",
    "alert x { when: backlog > 5, window: 30d }": "window",
    "alert x { when: backlog > 5, cooldown: 30d }": "cooldown",
    "alert x { when: backlog > -1 }": "when",
    "alert x { when: unreachable_workers > 5, queue: q }": "when",
    f"alert x {{ when: backlog > 5, channels: [{', '.join(f'c{n}' for n in range(200))}] }}": "channels",
    'alert x { when: backlog > 5, channels: ["a\\u0007"] }': "channels",
    f'channel c {{ name: "{"n" * 300}" }}': "name",
    'channel c { consumer a { name: "x\\u0007", queue: q } }': "name",
    "channel c { consumer a { queue: q } consumer b { queue: q } }": "queue",
    "channel c { consumer a { queue: q } } channel d { consumer b { queue: q } }": "queue",
    "queue z { retention { max_depth: 2000000000 } }": "max_depth",
    "queue z { delivery { max_backoff: 900d } }": "max_backoff",
    "queue z { delivery { lease: 30d } }": "lease",
}


@pytest.mark.parametrize("part", REFUSED_BY_OTHERS)
def test_what_an_apply_would_refuse_is_a_mistake_at_its_place(part: str) -> None:
    text = f"app A {{\n  queue q {{}}\n  {part}\n}}"
    with pytest.raises(SpecInvalid) as caught:
        read_spec(text, more=SPEC_CHECKS)
    (error,) = caught.value.extra["errors"]
    key = REFUSED_BY_OTHERS[part]
    places = [found.end() for found in re.finditer(rf"{key}: ?\[?", text.split("\n")[2])]
    assert (error["line"], error["column"] - 1) in [(3, place) for place in places], error


def test_the_command_checks_what_an_apply_checks(tmp_path: Path) -> None:
    path = tmp_path / "a.weir"
    path.write_text("app A { alert x { when: foo > 5 } }")
    answer = CliRunner().invoke(app, ["check", str(path)])
    assert (answer.exit_code, "a.weir:1:25: " in answer.output) == (1, True), answer.output
