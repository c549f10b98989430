"""Whatever is asked by URI, the answer is a document or a failure that the caller can act on."""

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.campaigns import sized

from trails.model.actors import LOCAL
from trails.model.results import Failure

SOME = [
    "trails://", "kg", "kg/", "/", "Requirement", "Person", "Party", "REQ-001", "types", "schema",
    "stats", "doctor", "branches", "branch/main/", "at/", "prov/latest", "queries/",
    "requirement_trace", "?", "&", "where=", "status=proposed", "priority=1", "owner=Person/x",
    "due=2026-01-01", "tags=", "limit=", "limit=2", "offset=", "offset=5", "cursor=", "=", "%",
    "%2F", "%22", "%0A", "%00", "%C3%A9", "%ED%A0%80", "é", "\u0301", "<", ">", "!", " AND a=1",
    "'", ";--", "#", "@", ":", "..", "\n", "\x00", "\ud800", "0", "9" * 30, "-1", "1e400", "nan",
    "{id}", "{?where}", "${x}", "trails://northline/main/", "*", "x" * 600,
]  # fmt: skip
URIS = st.one_of(
    st.lists(st.sampled_from(SOME), max_size=8).map("".join),
    st.lists(st.sampled_from(SOME) | st.text(max_size=4), max_size=6).map(
        lambda some: "trails://kg/Requirement" + "".join(some)
    ),
    st.lists(st.sampled_from(SOME) | st.text(max_size=4), max_size=4).map(
        lambda some: "trails://kg/Requirement?where=" + "".join(some)
    ),
    st.text(max_size=60),
)
TEMPLATES = st.sampled_from(
    [
        "trails://kg/Requirement/{id}",
        "trails://kg/Requirement{?where,limit,offset,cursor}",
        "trails://branch/{branch}/kg/{type}/{id}",
        "trails://at/{commit}/kg/{type}{?where,limit,offset,cursor}",
        "trails://queries/{name}",
    ]
)
VARIABLES = st.sampled_from(["id", "where", "branch", "commit", "type", "name", "limit", "x"])
TEXTS = st.text(max_size=8) | st.sampled_from([*SOME, "REQ", "st", "status=", "main"])


@pytest.fixture(scope="module")
def loop():
    """One event loop for all questions."""
    with asyncio.Runner() as runner:
        yield runner


def check_read(northline, loop, uri):
    """Read, and look at the answer."""
    found = loop.run(northline.reader.read(LOCAL, uri))
    if isinstance(found, Failure):
        assert found.kind in {"unknown", "validation"}, found
        assert len(found.message) < 2000
        json.dumps(found.data).encode()
        found.message.encode()
        return
    assert found[0].uri == uri
    json.loads(found[0].text)
    assert len(found) in {1, 2}


def check_completion(northline, loop, question):
    """Complete, and look at the answer."""
    template, variable, value, given = question
    found = loop.run(northline.reader.complete(LOCAL, template, variable, value, given))
    if isinstance(found, Failure):
        assert found.kind in {"unknown", "validation"}, found
        json.dumps(found.data).encode()
    else:
        assert len(found.values) <= 100


QUESTIONS = st.tuples(
    TEMPLATES | TEXTS, VARIABLES, TEXTS, st.dictionaries(VARIABLES, TEXTS, max_size=2)
)
SMOKE = settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
CAMPAIGN = settings(SMOKE, max_examples=sized(20_000, nightly=1_000))


@given(URIS)
@SMOKE
def test_any_uri_is_answered(northline, loop, uri):
    """No text makes a read fail inside the server."""
    check_read(northline, loop, uri)


@given(QUESTIONS)
@SMOKE
def test_any_completion_is_answered(northline, loop, question):
    """No template, variable or value makes a completion fail inside the server."""
    check_completion(northline, loop, question)


@pytest.mark.parametrize("character", ["a", "%", "é", "\ud800", "?", "/", "\n"])
def test_endless_texts_are_answered_at_once(northline, loop, character):
    """A text of megabytes is refused before anything is made of it."""
    text = character * 2_000_000
    for start in ("", "trails://kg/Requirement/", "trails://kg/Requirement?where=title="):
        check_read(northline, loop, start + text)
    one = "trails://kg/Requirement/{id}"
    for question in ((one, "id", text, {}), (text, "id", "", {}), (one, text, "", {})):
        check_completion(northline, loop, question)


@pytest.mark.long
@given(URIS)
@CAMPAIGN
def test_any_uri_is_answered_in_a_long_campaign(northline, loop, uri):
    """The same, many times."""
    check_read(northline, loop, uri)


@pytest.mark.long
@given(QUESTIONS)
@CAMPAIGN
def test_any_completion_is_answered_in_a_long_campaign(northline, loop, question):
    """The same, many times."""
    check_completion(northline, loop, question)
