"""Conditional requests, idempotency keys, links to next pages and compression, over real HTTP."""

import gzip
import json
from urllib.parse import quote, urlencode

import pytest

JSON = "application/json"


def note(key, **more):
    """An operation that creates a note."""
    return {"op": "upsert", "type": "Note", "data": {"key": key, "title": f"Note {key}", **more}}


@pytest.fixture(scope="module", autouse=True)
def notes(client):
    """Forty notes, one of them with a slash."""
    client.post("mutate", {"operations": [note(f"n{n:02}") for n in range(39)] + [note("a/b")]})


def get(client, path, **headers):
    """A read."""
    return client.send("GET", f"/graphs/main/{path}", **headers)


def write(client, operations, path="mutate", **headers):
    """A write, with headers."""
    body = json.dumps({"operations": operations}).encode()
    return client.send("POST", f"/graphs/main/{path}", body, content_type=JSON, **headers)


def head_of(client, branch="main"):
    """The head of a branch."""
    return client.get("snapshot", branch=branch)["head"]


READS = ("kg/Note", "kg/Note/n01", "kg/Note/a%2Fb", "commits", "branches", "snapshot", "queries")


# --- reads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", READS)
def test_a_read_that_has_not_changed_is_304(client, path):
    """By its whole tag, in a list, weak or strong, and by a star; HEAD alike."""
    got = get(client, path)
    tag = got.headers["etag"]
    assert got.headers["cache-control"] == "private, no-cache"
    assert "Authorization" in got.headers["vary"]
    for given in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        for method in ("GET", "HEAD"):
            again = client.send(method, f"/graphs/main/{path}", if_none_match=given)
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    for given in ('"x"', tag.strip('"'), tag[:-2] + '"', "", "nonsense"):
        assert get(client, path, if_none_match=given).status == 200


@pytest.mark.parametrize("path", ["kg/Note", "kg/Note/n01", "snapshot"])
def test_a_tag_names_the_commit_that_was_read(client, path):
    """Of the branch that was read; a write changes it, and a snapshot keeps its own."""
    head = head_of(client)
    tag = get(client, path).headers["etag"]
    assert tag.startswith(f'"{head}.')
    write(client, [note("n02", stars=1)])
    write(client, [note("n02", stars=2)])
    assert get(client, path, if_none_match=tag).status == 200
    assert get(client, f"{path}?snapshot={head}").headers["etag"].startswith(f'"{head}.')
    client.post("branches", {"name": f"tags/{path.replace('/', '-')}"})
    there = quote(f"tags/{path.replace('/', '-')}", safe="")
    assert get(client, f"{path}?branch={there}").headers["etag"].startswith(f'"{head_of(client)}.')


def test_the_tag_of_a_later_page_names_the_commit_of_the_first(client):
    """Pages are of one commit; a write that relies on one of them fails if others came after it."""
    page = client.get("kg/Note", limit=5)
    before = head_of(client)
    write(client, [note("n03", stars=4)])
    write(client, [note("n03", stars=5)])
    later = get(client, f"kg/Note?{urlencode({'limit': 5, 'cursor': page['next']})}")
    assert later.headers["etag"].startswith(f'"{before}.')
    assert write(client, [note("n03", stars=1)], if_match=later.headers["etag"]).status == 412


@pytest.mark.parametrize(("path", "member"), [("kg/Note", "instances"), ("commits", "commits")])
def test_links_lead_through_all_pages(client, path, member):
    """Relative, with the other parameters; the last page has none."""
    found, asked = [], "?limit=7"
    while asked:
        got = get(client, path + asked)
        body = json.loads(got.body)
        found += body[member]
        link = got.headers["link"]
        assert (link is None) == (body.get("next") is None)
        if link is not None:
            assert link.endswith('>; rel="next"')
            assert "limit=7" in link
        asked = "" if link is None else link[1:].partition(">")[0]
        if len(found) > 200:
            break
    assert [*map(str, found)] == [*map(str, client.get(path, limit=1000)[member])][: len(found)]


def test_a_link_leads_to_more_results(client):
    """Where the body names the call that continues, its cursor is in the link."""
    first = get(client, "search?query=note&limit=5")
    body = json.loads(first.body)
    assert "cursor" in body["next"]["arguments"]
    link = first.headers["link"]
    second = json.loads(get(client, f"search{link[1:].partition('>')[0]}").body)
    assert len(second["results"]) == 5
    ids = [{each["id"] for each in page["results"]} for page in (body, second)]
    assert not ids[0] & ids[1]


# --- writes ----------------------------------------------------------------------------------


def test_a_write_depends_on_the_head_that_it_names(client):
    """412 if others wrote, as a problem with both heads; 409 if a body names it, as before."""
    tag = get(client, "kg/Note/n04").headers["etag"]
    assert write(client, [note("n04", stars=1)], if_match=tag).status == 200
    got = write(client, [note("n04", stars=2)], if_match=tag)
    problem = json.loads(got.body)
    assert (got.status, problem["code"]) == (412, "precondition_failed")
    assert problem["data"]["head"] == head_of(client)
    assert f'"{problem["data"]["expected_head"]}.' in tag
    bare = f'"{head_of(client)}"'
    assert write(client, [note("n04", stars=3)], if_match=bare).status == 200
    assert write(client, [note("n04", stars=4)], if_match="*").status == 200
    body = {"operations": [note("n04", stars=5)], "expected_head": bare.strip('"')}
    assert client.post("mutate", body, status=409)["code"] == "conflict"
    rows = client.post("query", {"query": "SELECT ?s { <Note/n04> :stars ?s }"})["rows"]
    assert rows == [{"s": 4}]


def test_a_load_and_a_merge_depend_on_it_too(client):
    """By the same header."""
    client.post("branches", {"name": "loads"})
    before = head_of(client, "loads")
    line = b'{"type": "Note", "data": {"key": "z1", "title": "Note z1"}}\n'
    headers = {"content_type": "application/x-ndjson", "if_match": f'"{before}"'}
    for status in (200, 412):
        got = client.send("POST", "/graphs/main/load?branch=loads", line, **headers)
        assert got.status == status, got.body
    merge = json.dumps({"source": "loads"}).encode()
    for tag, status in (('"nope"', 412), (f'"{head_of(client)}"', 200)):
        got = client.send(
            "POST", "/graphs/main/branches/merge", merge, content_type=JSON, if_match=tag
        )
        assert got.status == status, got.body


@pytest.mark.parametrize("path", ["mutate", "invoke/graph_mutate"])
@pytest.mark.parametrize("key", ["a key", '"quoted \\" one"', "ü".encode().decode("latin-1")])
def test_a_key_repeats_the_first_answer(client, path, key):
    """As the argument does; another request with it is a conflict."""
    key = f"{path} {key}" if key[0] != '"' else f'"{path} {key[1:]}'
    first = json.loads(write(client, [note("k1", stars=1)], path, idempotency_key=key).body)
    again = json.loads(write(client, [note("k1", stars=1)], path, idempotency_key=key).body)
    assert again["commit"] == first["commit"]
    assert again.get("replayed", True) is True
    assert write(client, [note("k1", stars=2)], path, idempotency_key=key).status == 409


def test_a_key_precedes_the_head(client):
    """The repetition of a write that was done is not a failed precondition."""
    tag = get(client, "kg/Note/n05").headers["etag"]
    given = {"if_match": tag, "idempotency_key": "precedes"}
    first, again = (write(client, [note("n05", stars=3)], **given) for _ in range(2))
    assert (first.status, again.status) == (200, 200)
    assert json.loads(again.body)["commit"] == json.loads(first.body)["commit"]


def test_a_capability_takes_the_headers_of_a_write(client):
    """The first answer is repeated, and another head is a failed precondition."""
    body = json.dumps({"note": "Note/n07"}).encode()
    path = "/graphs/main/invoke/notes.finish"
    sent = {"content_type": JSON, "idempotency_key": "finish"}
    first, again = (client.send("POST", path, body, **sent) for _ in range(2))
    assert (first.status, again.status) == (200, 200)
    assert first.body == again.body
    late = client.send("POST", path, body, content_type=JSON, if_match='"x"')
    assert (late.status, json.loads(late.body)["code"]) == (412, "precondition_failed")


def test_headers_that_can_not_be_obeyed_are_refused(client):
    """And what was sent with them is not done."""
    sent = {"content_type": JSON}
    branch = json.dumps({"name": "refused"}).encode()
    finish = json.dumps({"note": "Note/n06"}).encode()
    change = {"operations": [note("n06", stars=5)]}
    key = json.dumps({**change, "idempotency_key": "one"}).encode()
    head = json.dumps({**change, "expected_head": ["odd"]}).encode()
    for path, body, headers in (
        ("branches", branch, {"idempotency_key": "k"}),
        ("branches", branch, {"if_match": '"x"'}),
        ("invoke/notes.finish", finish, {"if_match": "nonsense"}),
        ("mutate", json.dumps(change).encode(), {"if_match": "nonsense"}),
        ("mutate", json.dumps(change).encode(), {"if_match": '""'}),
        ("mutate", json.dumps(change).encode(), {"if_match": '"a", "b"'}),
        ("mutate", key, {"idempotency_key": "two"}),
        ("mutate", head, {"if_match": '"x"'}),
    ):
        got = client.send("POST", f"/graphs/main/{path}", body, **sent, **headers)
        assert (got.status, json.loads(got.body)["code"]) == (400, "header"), (path, headers)
    assert write(client, [note("n06")], idempotency_key="").status == 422
    assert write(client, [note("n06")], idempotency_key="x" * 300).status == 422
    names = [each["name"] for each in client.get("branches")["branches"]]
    assert "refused" not in names
    assert b'stars":null' in get(client, "kg/Note/n06").body
    asked = json.dumps({"query": "ASK {}"}).encode()
    assert client.send("POST", "/graphs/main/query", asked, **sent, if_match='"x"').status == 200


# --- compression -----------------------------------------------------------------------------


def test_texts_above_a_size_are_compressed(client):
    """Where that is accepted; the tag is another one, and 304 works with either."""
    plain = get(client, "kg/Note?limit=30")
    assert plain.headers["content-encoding"] is None
    assert "Accept-Encoding" in plain.headers["vary"]
    packed = get(client, "kg/Note?limit=30", accept_encoding="br, gzip;q=0.5")
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) == int(packed.headers["content-length"]) < len(plain.body) / 2
    assert gzip.decompress(packed.body) == plain.body
    assert packed.headers["etag"] == plain.headers["etag"][:-1] + '.gzip"'
    for tag in (plain.headers["etag"], packed.headers["etag"]):
        again = get(client, "kg/Note?limit=30", if_none_match=tag, accept_encoding="gzip")
        assert (again.status, again.headers["etag"]) == (304, tag)
    assert write(client, [note("n07")], if_match=packed.headers["etag"]).status == 200


@pytest.mark.parametrize("accepted", ["", "identity", "gzip;q=0", "*;q=0", "br", "gzip;q=x"])
def test_what_is_not_accepted_is_not_sent(client, accepted):
    """Also where it is named and has no weight."""
    got = get(client, "kg/Note?limit=30", accept_encoding=accepted)
    assert got.headers["content-encoding"] is None
    assert json.loads(got.body)["instances"]


def test_small_answers_errors_and_streams_are_not_compressed(client):
    """They gain nothing, quote what was sent, or are compressed already."""
    for path in ("kg/Note/n01", f"kg/Note/{'x' * 3000}", "export?format=ndjson", "nothing"):
        got = get(client, path, accept_encoding="gzip")
        assert got.headers["content-encoding"] is None, path


def test_large_answers_are_compressed_beside_the_loop(client):
    """The same bytes, in whichever way they were packed."""
    query = "SELECT ?a ?b { VALUES ?a { 1 2 3 4 5 } ?b ?p ?o }"
    asked = f"sparql?{urlencode({'query': query})}"
    packed = get(client, asked, accept_encoding="gzip")
    assert packed.headers["content-encoding"] == "gzip"
    assert len(gzip.decompress(packed.body)) > 32 << 10
    assert gzip.decompress(packed.body) == get(client, asked).body
