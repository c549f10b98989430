"""Instances and lists in the form that a client accepts, with the fields that it asks for."""

import csv
import io
import json

import pytest
from rdflib import Graph
from tests.worlds.clients import RestClient, ThreadedServer
from tests.worlds.projects import make_project

from trails import App
from trails.app.kernels import kernel_of
from trails.surfaces.rest.routes import build_app

APP = '''
from __future__ import annotations

from datetime import date
from decimal import Decimal

from trails import BigInt, Ref, node_type, predicate


@node_type
class Person:
    """Somebody."""

    name: str = predicate(key=True)


@node_type
class Page:
    """A page with fields of many kinds."""

    slug: str = predicate(key=True)
    title: str = predicate(label=True)
    price: Decimal | None = predicate()
    day: date | None = predicate()
    big: BigInt | None = predicate()
    tags: list[str] = predicate()
    author: Ref[Person] | None = predicate()
    body: str | None = predicate()


@node_type
class Chapter(Page):
    """A page of a book."""

    number: int | None = predicate()
'''
pytestmark = pytest.mark.filterwarnings("ignore:ConjunctiveGraph")  # rdflib uses it
LONG = 'löng\r\n, "text" ' * 20_000


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A served project with pages, one of them with a long text and one with a slash."""
    folder = make_project(tmp_path_factory.mktemp("forms"), APP)
    with App.open(folder, strict=True) as app:
        kernel = kernel_of(app)
        serving = ThreadedServer(build_app({"main": kernel}))
        made = RestClient(serving.port)

        def put(type_name, **data):
            return {"op": "create", "type": type_name, "data": data}

        pages = [
            put("Person", name="ann"),
            put(
                "Page",
                slug="a",
                title='A "quoted", title',
                price="1.50",
                day="2026-03-01",
                big=str(2**70),
                tags=["x", "y,z"],
                author="Person/ann",
            ),
            put("Page", slug="b/ü", title="=1+1", body=LONG),
            put("Chapter", slug="c", title="C", number=3),
            *(put("Page", slug=f"p{n:02}", title=f"P{n}") for n in range(20)),
        ]
        made.post("mutate", {"operations": pages})
        yield made
        serving.close()
        kernel.close()


def get(client, path, accept=None, **headers):
    """A read."""
    given = {} if accept is None else {"accept": accept}
    return client.send("GET", f"/graphs/main/{path}", **given, **headers)


def statements(text, form):
    """The statements of a document, read by an independent parser."""
    return {tuple(map(str, each)) for each in Graph().parse(data=text, format=form)}


@pytest.mark.parametrize("path", ["kg/Page/a", "kg/Page/b%2F%C3%BC", "kg/Page?limit=100"])
def test_json_ld_and_turtle_say_the_same(client, path):
    """Each statement, datatypes and line breaks included; as the export has them."""
    linked, turtle = get(client, path, "application/ld+json"), get(client, path, "text/turtle")
    assert linked.headers["content-type"] == "application/ld+json"
    assert turtle.headers["content-type"] == "text/turtle; charset=utf-8"
    found = statements(turtle.body.decode(), "turtle")
    assert found == statements(linked.body.decode(), "json-ld")
    exported = statements(get(client, "export?format=turtle").body.decode(), "turtle")
    assert found < exported
    assert linked.headers["etag"] != turtle.headers["etag"]
    for each, media in ((linked, "application/ld+json"), (turtle, "text/turtle")):
        again = get(client, path, media, if_none_match=each.headers["etag"])
        assert (again.status, again.body) == (304, b"")


def test_plain_json_has_the_values_that_capabilities_return(client):
    """Numbers as far as JSON has them; references as IRIs; what has no value is null or empty."""
    got = get(client, "kg/Page/a", "application/json")
    assert got.headers["content-type"] == "application/json"
    assert json.loads(got.body) == {
        "iri": "trails://acme/main/Page/a",
        "type": "Page",
        "slug": "a",
        "title": 'A "quoted", title',
        "price": "1.5",
        "day": "2026-03-01",
        "big": str(2**70),
        "tags": ["x", "y,z"],
        "author": "trails://acme/main/Person/ann",
        "body": None,
    }
    long = json.loads(get(client, "kg/Page/b%2F%C3%BC", "application/json").body)
    assert long["body"] == LONG
    assert long["tags"] == []
    chapter = json.loads(get(client, "kg/Chapter/c", "application/json").body)
    assert (chapter["type"], chapter["number"]) == ("Chapter", 3)


def test_the_default_is_what_it_was(client):
    """JSON-LD for an instance, a page of labels for a list, also for a browser."""
    for accept in (None, "*/*", "text/html,application/xhtml+xml,*/*;q=0.8"):
        got = get(client, "kg/Page/a", accept)
        assert got.headers["content-type"] == "application/ld+json"
        page = json.loads(get(client, "kg/Page?limit=2", accept).body)
        assert set(page) == {"instances", "next"}
        assert set(page["instances"][0]) == {"iri", "label"}


def test_csv_is_a_table_of_all_fields(client):
    """Texts come back as they were; types that extend the type have their own columns."""
    got = get(client, "kg/Page?limit=100", "text/csv")
    assert got.headers["content-type"] == "text/csv; charset=utf-8"
    csv.field_size_limit(1 << 30)
    rows = list(csv.DictReader(io.StringIO(got.body.decode(), newline="")))
    assert len(rows) == 23
    by_slug = {each["slug"]: each for each in rows}
    assert by_slug["b/ü"]["body"] == LONG
    assert by_slug["a"]["tags"] == '["x","y,z"]'
    assert by_slug["c"]["number"] == "3"
    assert by_slug["c"]["type"] == "Chapter"


@pytest.mark.parametrize("fields", ["title,tags", "title&fields=tags", " tags , title,title"])
def test_fields_are_chosen(client, fields):
    """In every form, for an instance and for a list."""
    fields = fields.replace(" ", "%20")
    one = f"kg/Page/a?fields={fields}"
    assert json.loads(get(client, one, "application/json").body) == {
        "iri": "trails://acme/main/Page/a",
        "type": "Page",
        "title": 'A "quoted", title',
        "tags": ["x", "y,z"],
    }
    linked = json.loads(get(client, one, "application/ld+json").body)
    assert {each.rpartition("#")[2] for each in linked} == {"@id", "@type", "title", "tags"}
    turtle = statements(get(client, one, "text/turtle").body.decode(), "turtle")
    assert turtle == statements(json.dumps(linked), "json-ld")
    many = f"kg/Page?limit=2&fields={fields}"
    page = json.loads(get(client, many).body)
    assert page["instances"][0]["values"] == {"title": 'A "quoted", title', "tags": ["x", "y,z"]}
    assert page["next"]
    head = get(client, many, "text/csv").body.split(b"\r\n")[0]
    assert set(head.decode().split(",")) == {"type", "id", "title", "tags"}


@pytest.mark.parametrize("accept", ["text/csv", "text/turtle", "application/ld+json"])
def test_links_lead_through_the_pages_of_every_form(client, accept):
    """There is no other place for a cursor in these."""
    asked, sizes = "?limit=10&fields=title", 0
    pages = []
    while asked:
        got = get(client, f"kg/Page{asked}", accept)
        assert got.status == 200
        pages.append(got.body)
        link = got.headers["link"]
        asked = "" if link is None else link[1:].partition(">")[0]
        sizes += 1
    assert sizes == 3
    assert len(set(pages)) == 3


def test_what_there_is_not_is_refused(client):
    """406 lists the forms; a field that does not exist is named, with those that do."""
    for path, media in (
        ("kg/Page/a", ["application/ld+json", "application/json", "text/turtle"]),
        ("kg/Page", ["application/json", "application/ld+json", "text/turtle", "text/csv"]),
    ):
        got = get(client, path, "image/png")
        problem = json.loads(got.body)
        assert (got.status, problem["code"]) == (406, "not_acceptable")
        assert problem["data"]["available"] == media
        for accept in (None, "application/json", "text/turtle"):
            got = get(client, f"{path}?fields=titel", accept)
            problem = json.loads(got.body)
            assert (got.status, problem["code"]) == (422, "validation"), problem
            assert "title" in problem["detail"]
        for odd in ("", ",", "title,"):
            assert get(client, f"{path}?fields={odd}").status == 400
    assert get(client, "kg/Page/a", "text/csv").status == 406
    assert get(client, "kg/Nope", "text/csv").status == 404
    assert get(client, "kg/Page/nope", "text/turtle").status == 404
