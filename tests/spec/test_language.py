"""The spec language at each joint, against golden files, and under fuzzing."""

from __future__ import annotations

import contextlib
import json
import random
import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec.golden import FOLDER, SOURCES, joints
from weir.errors import SpecInvalid
from weir.model.durations import DAY_MS, HOUR_MS
from weir.spec.dump import dumped
from weir.spec.fmt import formatted
from weir.spec.language import read_spec, spec_of
from weir.spec.parse import parse
from weir.spec.spec_problems import MAX_LINE, SpecProblem, rendered
from weir.spec.syntax import SourceSpan

TEXTS = {path.name: path.read_text() for path in SOURCES if path.suffix == ".weir"}
GOOD = {name: text for name, text in TEXTS.items() if not name.startswith("bad-")}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_every_joint_says_what_its_golden_file_says(source):
    found = joints(source)
    assert {ending: (FOLDER / f"{source.stem}.{ending}").read_text() for ending in found} == found


def test_there_are_a_dozen_good_specs_and_some_bad_ones():
    bad = [path for path in SOURCES if path.name.startswith("bad-")]
    assert len(SOURCES) - len(bad) >= 12
    assert len(bad) >= 5


@pytest.mark.parametrize("name", GOOD)
def test_formatting_is_idempotent_and_keeps_meaning_and_comments(name):
    document = parse(GOOD[name])
    once = formatted(document)
    again = parse(once)
    assert formatted(again) == once
    assert [comment.text for comment in again.comments] == [comment.text for comment in document.comments]
    assert read_spec(once) == read_spec(GOOD[name])


@pytest.mark.parametrize("name", GOOD)
def test_the_stored_form_loads_to_an_equal_app(name):
    app = read_spec(GOOD[name])
    assert spec_of(dumped(app)) == app


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_comments_and_line_breaks_anywhere_survive_formatting(data):
    """Put comments and breaks between any two tokens: the meaning stays, no comment is lost, fmt settles."""
    text = GOOD[data.draw(st.sampled_from(sorted(set(GOOD) - {"comments.weir"})))]
    lines = text.split("\n")
    for number in data.draw(st.lists(st.integers(0, len(lines) - 1), max_size=8)):
        comment = f"// {data.draw(st.text(string.ascii_letters + ' {}:/', max_size=8))}".rstrip()
        place = data.draw(st.sampled_from(["own", "behind", "blank"]))
        if place == "own":
            lines[number] = f"{comment}\n{lines[number]}"
        elif place == "behind":
            lines[number] = f"{lines[number]} {comment}"
        else:
            lines[number] = f"\n\n{lines[number]}"
    changed = "\n".join(lines)
    document = parse(changed)
    once = formatted(document)
    again = parse(once)
    assert sorted(one.text for one in again.comments) == sorted(one.text for one in document.comments)
    assert formatted(again) == once
    assert read_spec(once) == read_spec(text)


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_no_text_crashes_the_reader(text):
    for file in ("x.weir", "x.json", "x.yaml"):
        with contextlib.suppress(SpecInvalid):
            read_spec(text, file=file)


@given(seed=st.integers(0, 2**32), name=st.sampled_from(sorted(TEXTS)))
@settings(max_examples=300, deadline=None)
def test_a_mutated_spec_is_read_or_refused_with_a_place(seed, name):
    """Cut, double and swap pieces of real specs; only SpecInvalid may come out, and it names a line."""
    dice = random.Random(seed)
    text = TEXTS[name]
    for _ in range(dice.randint(1, 4)):
        start = dice.randrange(len(text) + 1)
        end = min(len(text), start + dice.randrange(12))
        piece = dice.choice(
            ["", "{", "}", '"', ":", ",", "//", "\n", "\\", "1e9", "'", "?", "🦊", text[start:end] * 2]
        )
        text = text[:start] + piece + text[end:]
    try:
        app = read_spec(text, file="fuzzed.weir")
    except SpecInvalid as error:
        refusal = error.message
    else:
        assert read_spec(formatted(parse(text))) == app
        return
    assert refusal.startswith("fuzzed.weir:")


def test_ten_thousand_lines_are_read_in_under_two_seconds():
    body = "\n".join(TEXTS["incidents.weir"].split("\n")[1:-2])
    parts = [
        body.replace("Webhook", f"Webhook{number}").replace("PagerDutyAlert", f"Alert{number}")
        for number in range(200)
    ]
    text = "app Big {\n" + "\n".join(parts) + "\n}\n"
    assert text.count("\n") >= 10_000
    started = time.perf_counter()
    app = read_spec(text)
    assert time.perf_counter() - started < 2
    assert len(app.queues) == 400


def test_a_deeply_nested_text_is_refused_and_not_fatal():
    for text in (
        "app A " + "{ queue B " * 5_000,
        "app A { queue B { map_to: command C.D { x: " + "(" * 5_000,
    ):
        with pytest.raises(SpecInvalid):
            read_spec(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('app A { queue "B { }', 'this text has no end; close it with `"` in the same line'),
        ("app A {} app B {}", "`app` does not belong here; expected the end of the file"),
    ],
)
def test_an_error_names_what_is_wrong_and_not_what_the_parser_wanted(text, message):
    with pytest.raises(SpecInvalid) as caught:
        read_spec(text)
    assert caught.value.extra["errors"][0]["detail"] == message


@pytest.mark.parametrize("column", [1, 9, 500, 49_999])
def test_of_a_long_line_only_the_surroundings_are_shown(column):
    text = "app A { queue B {} " + "x" * 50_000
    span = SourceSpan(1, column, column - 1, column)
    head, line, caret = rendered(SpecProblem(message="bad", span=span), file="f", text=text).split("\n")
    assert head == f"f:1:{column}: bad"
    assert len(line) <= 4 + MAX_LINE + 2
    assert line[len(caret) - 1] == text[column - 1]


def test_a_byte_order_mark_says_nothing():
    assert read_spec("\ufeffapp A { queue B {} }") == read_spec("app A { queue B {} }")


@pytest.mark.parametrize("file", ["x.json", "x.yaml"])
def test_a_document_takes_every_duration_that_spec_text_takes(file):
    queue = {
        "retention": {"max_age": "30d"},
        "delivery": {"initial_backoff": "1s", "max_backoff": "1m", "lease": "30s", "handler_timeout": "5m"},
        "message_ttl": "1h",
        "idempotency_window": "12h",
        "log": "7d",
    }
    document = {
        "app": "Shop",
        "queues": {"orders": queue},
        "alerts": {"late": {"when": "backlog > 5", "window": "5m", "cooldown": "1h"}},
        "schedules": {"nightly": {"queue": "orders", "every": "1h"}},
    }
    app = read_spec(json.dumps(document), file=file)
    (orders,), (late,), (nightly,) = app.queues, app.alerts, app.schedules
    assert (orders.log_ms, orders.delivery.lease_ms, orders.message_ttl_ms) == (7 * DAY_MS, 30_000, HOUR_MS)
    assert (late.window_ms, late.cooldown_ms, nightly.timing.every_ms) == (300_000, HOUR_MS, HOUR_MS)


def test_json_that_is_nested_too_deeply_is_refused():
    with pytest.raises(SpecInvalid, match=r"f\.json:1:102: the document is nested too deeply"):
        read_spec("[" * 100_000, file="f.json")


def test_an_error_shows_file_line_column_text_caret_and_the_nearest_word():
    with pytest.raises(SpecInvalid) as caught:
        read_spec("app A {\n  queue B {\n    ordring: fifo\n  }\n}\n", file="queues.weir")
    lines = caught.value.message.split("\n")
    assert lines[0].startswith("queues.weir:3:5: `ordring` does not belong in a queue")
    assert lines[0].endswith("did you mean `ordering`?")
    assert lines[1:] == ["        ordring: fifo", "        ^^^^^^^"]
    assert caught.value.extra["errors"][0]["line"] == 3


def test_the_older_word_for_secrets_is_read_and_written_as_the_new_one():
    old = 'app A { queue Q {} webhook W { queue: Q, verify github { secret_env: ["NEW", "OLD"] } } }'
    app = read_spec(old)
    assert app == read_spec(old.replace("secret_env", "secret"))
    assert dumped(app)["webhooks"]["W"]["verify"]["secret"] == ["NEW", "OLD"]
    with pytest.raises(SpecInvalid, match="`secret_env` is now `secret`; keep `secret`"):
        read_spec(old.replace("secret_env", 'secret: "NEW", secret_env'))
    with pytest.raises(SpecInvalid, match="`a-b` is not the name of a secret"):
        read_spec(old.replace("OLD", "a-b"))
