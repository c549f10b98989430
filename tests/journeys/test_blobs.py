"""Blobs over every surface: kept, named, read in parts, checked, cleaned up and backed up."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.worlds.clients import RestClient, ThreadedServer
from tests.worlds.processes import Shell

from trails import App, Blob, LoadRequest, MergeRequest, Node, node_type, predicate
from trails.app.kernels import kernel_of
from trails.app.settings import Budgets, GraphSettings, Project, Settings
from trails.app.upkeep import backup_project, put_back
from trails.engine.graph.activities import CallRecord
from trails.engine.session.context import GraphContext
from trails.engine.upkeep.maintenance import cleanup
from trails.engine.upkeep.verify import verify
from trails.errors import (
    BudgetError,
    CorruptionError,
    LimitError,
    NotFoundError,
    QueryError,
    ValidationError,
)
from trails.model.actors import Actor
from trails.model.capabilities import Action
from trails.model.types import Schema
from trails.model.upkeep import RestoreRequest
from trails.model.values.blobs import BlobError, BlobFacts, write_blob
from trails.model.visibility import Visibility
from trails.surfaces.rest.routes import build_app

APP = '''
from trails import Blob, Node, node_type, predicate


@node_type
class Part(Node):
    """Something with a drawing."""

    code: str = predicate(key=True)
    sheet: Blob | None = predicate()
    more: list[Blob] = predicate()
    secret: Blob | None = predicate()
'''
BODY = bytes(range(256)) * 1000


@node_type
class Part(Node):
    """Something with a drawing."""

    code: str = predicate(key=True)
    sheet: Blob | None = predicate()
    more: list[Blob] = predicate()
    secret: Blob | None = predicate()


def open_app(folder: Path | None) -> App:
    """A graph of parts."""
    if folder is not None and not (folder / "trails.toml").exists():
        (folder / "trails.toml").write_text('[project]\nname = "parts"\n', encoding="utf-8")
    return App(Part, name="parts", folder=folder)


def blobs_of(folder: Path) -> Path:
    """Where they are."""
    return folder / ".trails" / "graphs" / "main" / "blobs"


def findings(app: App) -> dict[str, str]:
    """What verify says of each part."""
    return {each.name: each.severity for each in verify(app.graph(), lambda _: None)}


@pytest.fixture(params=["file", "memory"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """On disk and in memory."""
    with open_app(tmp_path if request.param == "file" else None) as opened:
        yield opened


# --- the value ---------------------------------------------------------------------


@given(
    st.sampled_from(["text/plain", "application/vnd.a+json", "image/svg+xml"]),
    st.text(max_size=40),
    st.integers(0, 10**15),
)
@example("text/plain", 'a"b;c&d=e#f%20ü/../x', 0)
def test_a_value_says_what_it_names(media_type: str, name: str, size: int) -> None:
    """Digest, size, media type and name come back from the URI, for every name that is allowed."""
    facts = BlobFacts("ab" * 32, size, media_type, name)
    try:
        blob = write_blob(facts)
    except BlobError:
        last = name.replace("\\", "/").rpartition("/")[2]
        assert not last.isprintable() or last in {".", ".."}
        return
    kept = blob.facts
    assert kept is not None
    assert (kept.digest, kept.size, kept.media_type) == ("ab" * 32, size, media_type)
    assert kept.name == name.replace("\\", "/").rpartition("/")[2]
    assert blob.isascii()


@pytest.mark.parametrize(
    "uri",
    [
        "https://example.org/a",
        "sha256:abc",
        f"sha256:{'0' * 64}",
        f"sha256:{'0' * 64}?size=01&type=a/b",
        f"sha256:{'0' * 64}?size=1&type=a",
        f"sha256:{'A' * 64}?size=1&type=a/b",
        f"sha256:{'0' * 64}?size=1&type=a/b&name=x%2Fy",
        f"sha256:{'0' * 64}?type=a/b&size=1",
    ],
)
def test_any_other_uri_names_nothing_here(uri: str) -> None:
    """There is one spelling."""
    assert Blob(uri).facts is None


@pytest.mark.parametrize(("media_type", "name"), [("x", ""), ("a/b c", ""), ("a/b", "a\nb")])
def test_a_wrong_media_type_or_name_is_refused(app: App, media_type: str, name: str) -> None:
    """Before anything is kept."""
    with pytest.raises(QueryError):
        Blob.put(app.context(), b"x", media_type=media_type, name=name)


# --- putting, naming, reading ------------------------------------------------------


@pytest.mark.req("E7")
def test_what_was_put_is_read_in_parts(app: App, tmp_path: Path) -> None:
    """From bytes, a file or a stream; any range, checked block by block."""
    ctx = app.context()
    (tmp_path / "sheet.bin").write_bytes(BODY)
    put = [
        Blob.put(ctx, BODY, name="sheet.bin"),
        Blob.put(ctx, tmp_path / "sheet.bin"),
        Blob.put(ctx, io.BytesIO(BODY), name="sheet.bin"),
    ]
    assert len(set(put)) == 1
    assert put[0].facts == BlobFacts(
        sha256(BODY).hexdigest(), len(BODY), "application/octet-stream", "sheet.bin"
    )
    Part(code="p", sheet=put[0], more=[put[0], Blob("urn:x:y")]).save(ctx)
    blob = Part.get(ctx, "p").sheet
    assert blob is not None
    assert blob.read(ctx) == BODY
    for start, length in (
        (0, 1),
        (65_535, 2),
        (65_536, 70_000),
        (255_999, 9),
        (256_000, 5),
        (9, 0),
    ):
        assert blob.read(ctx, start, length) == BODY[start : start + length]
    empty = Blob.put(ctx, b"")
    Part(code="e", sheet=empty).save(ctx)
    assert empty.read(ctx) == b""
    assert set(findings(app).values()) == {"ok"}


@pytest.mark.parametrize(
    "uri", [f"sha256:{'0' * 64}?size=1&type=a/b", "sha256:abc", f"sha256:{'0' * 64}?size=1"]
)
def test_a_record_names_only_what_is_kept(app: App, uri: str) -> None:
    """The violation says what to do; nothing is written."""
    with pytest.raises(ValidationError) as caught:
        Part(code="p", sheet=Blob(uri)).save(app.context())
    (error,) = caught.value.fields
    assert (error.field, error.code) == ("sheet", "reference")
    assert "send the content first" in error.message
    with pytest.raises(NotFoundError):
        Blob(uri).read(app.context())


def test_a_wrong_size_is_refused(app: App) -> None:
    """The value must be the one that was answered."""
    ctx = app.context()
    blob = Blob.put(ctx, b"12345")
    with pytest.raises(ValidationError):
        Part(code="p", sheet=Blob(blob.replace("size=5", "size=6"))).save(ctx)


def test_history_merges_and_exports_keep_naming_it(tmp_path: Path) -> None:
    """A blob stays as long as some commit names it."""
    with open_app(tmp_path) as app:
        ctx = app.context()
        Part(code="p").save(ctx)
        app.versions().create_branch("side")
        side = app.context(branch="side")
        part = Part.get(side, "p")
        part.sheet = Blob.put(side, BODY, media_type="image/png")
        part.save(side)
        app.versions().merge(MergeRequest("side"))
        text = b"".join(app.export(ctx, "ndjson"))
        assert part.sheet.encode() in text
        part = Part.get(ctx, "p")
        part.delete(ctx)
        app.versions().delete_branch("side", force=True)
        cleanup(app.graph(), keep=0)
        before = app.versions().commits(limit=2).commits[-1].id
        assert Part.get(app.context(snapshot=before), "p").sheet.read(ctx) == BODY
        assert set(findings(app).values()) == {"ok"}


def test_loads_and_raw_statements_name_blobs_too(tmp_path: Path) -> None:
    """Every way to write keeps what it names; a load says which line names nothing."""
    with open_app(tmp_path) as app:
        ctx = app.context()
        blobs = [Blob.put(ctx, text.encode()) for text in ("loaded", "raw", "updated")]
        line = json.dumps({"type": "Part", "data": {"code": "l", "sheet": blobs[0]}})
        app.load(LoadRequest(files=(io.BytesIO(line.encode()),), format="ndjson"))
        wrong = line.replace(blobs[0].facts.digest, "0" * 64).replace('"l"', '"w"')
        with pytest.raises(ValidationError, match="send the content first"):
            app.load(LoadRequest(files=(io.BytesIO(wrong.encode()),), format="ndjson"))
        iri = ctx.kg.iri("Part/l")
        uri = f'"{blobs[2]}"^^<http://www.w3.org/2001/XMLSchema#anyURI>'
        app.mutate(ctx, f"INSERT DATA {{ <{iri}> :more {uri} }}")
        app.graph().allow_bypass = True
        uri = f'"{blobs[1]}"^^<http://www.w3.org/2001/XMLSchema#anyURI>'
        ctx.kg.raw_sparql(f"INSERT DATA {{ <{iri}> :more {uri} }}", skip_validation=True)
        assert app.graph().blobs.digests() == sorted(each.facts.digest for each in blobs)
        assert set(findings(app).values()) == {"ok"}


def test_an_actor_with_a_credential_keeps_only_so_much_without_naming_it(app: App) -> None:
    """As with uploads that are on their way."""
    app.graph().most_unnamed = 1000
    caller = Actor("user:ann", credential="token:1")
    call = CallRecord(caller.name, "test", "load", caller=caller)
    ctx = app.context(actor=caller.name).for_call(call)
    blob = Blob.put(ctx, bytes(2000))
    with pytest.raises(BudgetError, match="no commit names"):
        Blob.put(ctx, b"more")
    Part(code="p", sheet=blob).save(ctx)
    Blob.put(ctx, b"more")


# --- who may name and read it --------------------------------------------------------


class Partial:
    """An actor who may not see the secret field."""

    unrestricted = False

    def may(self, action: Action, branch: str, target: str = "") -> bool:
        """Every action is allowed."""
        return True

    def visibility(self, schema: Schema, branches: Iterable[str]) -> Visibility:
        """One field is hidden."""
        return Visibility(frozenset(), {"Part": frozenset({"secret"})})


def restricted(app: App, actor: str = "bob") -> GraphContext:
    """A context of such an actor."""
    ctx = app.context()
    return GraphContext(
        app.graph(), ctx.registry, actor=actor, checkout=app.graph().main, access=Partial()
    )


@pytest.mark.req("E11a")
def test_a_digest_gives_no_access(app: App) -> None:
    """Who knows the content of a hidden blob learns nothing by naming it, and reads nothing."""
    ctx = app.context()
    hidden = Blob.put(ctx, b"the secret", media_type="text/plain")
    unknown = Blob(hidden.replace(hidden.facts.digest, "0" * 64))
    Part(code="s", secret=hidden).save(ctx)
    bob = restricted(app)
    said = []
    for blob in (hidden, unknown):
        with pytest.raises(ValidationError) as caught:
            Part(code="b", sheet=blob).save(bob)
        with pytest.raises(NotFoundError) as unread:
            blob.read(bob)
        said.append((caught.value.message + unread.value.message).replace(blob.facts.digest, "D"))
    assert said[0] == said[1]
    visible = Blob.put(ctx, b"for everybody")
    Part(code="v", sheet=visible).save(ctx)
    assert visible.read(bob) == b"for everybody"
    Part(code="b", sheet=visible).save(bob)  # it can be read, so it can be named
    own = Blob.put(bob, b"the secret", media_type="text/plain")
    assert own.read(bob) == b"the secret"
    Part(code="c", sheet=own).save(bob)
    with pytest.raises(NotFoundError):
        bob.kg.blob_of("Part", "s", "secret")


# --- upkeep ------------------------------------------------------------------------


def test_what_no_commit_names_is_removed_after_a_day(tmp_path: Path) -> None:
    """Until then it is pending, also over a restart."""
    with open_app(tmp_path) as app:
        ctx = app.context()
        blob = Blob.put(ctx, b"nobody wants it")
        kept = Blob.put(ctx, b"somebody does")
        cleanup(app.graph())
    with open_app(tmp_path) as app:
        Part(code="p", sheet=kept).save(app.context())
        pending = blobs_of(tmp_path) / "pending" / blob.facts.digest
        assert pending.exists()
        os.utime(pending, (1, time.time() - 25 * 3600))
        cleanup(app.graph())
        assert not pending.exists()
        assert kept.read(app.context()) == b"somebody does"
        with pytest.raises(ValidationError):
            Part(code="q", sheet=blob).save(app.context())


@pytest.mark.parametrize("step", ["before_append", "after_append"])
def test_a_crash_around_the_commit_keeps_what_it_names(tmp_path: Path, step: str) -> None:
    """A blob whose commit was not written is pending again; one whose commit was is kept."""

    class CrashError(Exception):
        """The process died."""

    def crash(reached: str) -> None:
        if reached == step:
            raise CrashError

    with open_app(tmp_path) as app:
        ctx = app.context()
        blob = Blob.put(ctx, BODY)
        app.graph().on_step = crash
        app.graph().blobs.committed = lambda digests: None  # that far it never came
        with pytest.raises(CrashError):
            Part(code="p", sheet=blob).save(ctx)
    place = blobs_of(tmp_path) / blob.facts.digest[:2] / blob.facts.digest
    assert place.exists()
    with open_app(tmp_path) as app:
        cleanup(app.graph())
        assert place.exists() is (step == "after_append")
        assert not any((blobs_of(tmp_path) / "new").iterdir())
        Part(code="q", sheet=blob).save(app.context())
        assert blob.read(app.context()) == BODY
        assert set(findings(app).values()) == {"ok"}


@pytest.mark.parametrize("how", ["flipped", "cut", "gone", "sums"])
def test_damage_is_found(tmp_path: Path, how: str) -> None:
    """By the read of the block, and by verify; checksums alone are made again."""
    with open_app(tmp_path) as app:
        ctx = app.context()
        blob = Blob.put(ctx, BODY)
        Part(code="p", sheet=blob).save(ctx)
        assert blob.read(ctx, 0, 1)
    place = blobs_of(tmp_path) / blob.facts.digest[:2] / blob.facts.digest
    if how == "gone":
        place.unlink()
    elif how == "sums":
        place.with_name(place.name + ".sums").write_bytes(b"xxxx")
    else:
        changed = bytearray(BODY)
        changed[100_000] ^= 1
        place.write_bytes(changed if how == "flipped" else BODY[:-1])
    with open_app(tmp_path) as app:
        ctx = app.context()
        if how == "sums":
            assert blob.read(ctx) == BODY
            assert findings(app)["blobs"] == "ok"
            return
        with pytest.raises((CorruptionError, NotFoundError)):
            blob.read(ctx, 99_999, 5)
        if how == "flipped":
            assert blob.read(ctx, 0, 10) == BODY[:10]
        assert findings(app)["blobs"] == "problem"


def test_backups_have_the_blobs(tmp_path: Path) -> None:
    """Each part of a set those that are new; a restore has all that its commits name."""
    project, source = tmp_path / "one", tmp_path / "backup"
    project.mkdir()
    with open_app(project) as app:
        ctx = app.context()
        first = Blob.put(ctx, BODY)
        Part(code="a", sheet=first).save(ctx)
        at = app.graph().main.head.commit
        backup_project(app, source, lambda _: None)
        second = Blob.put(ctx, b"second")
        Part(code="b", sheet=second, more=[first]).save(ctx)
        Blob.put(ctx, b"pending")
        backup_project(app, source, lambda _: None)
    parts = [
        sorted(
            path.name for path in (source / "main" / number / "blobs").rglob("*") if path.is_file()
        )
        for number in ("000001", "000002")
    ]
    assert parts == [[first.facts.digest], [second.facts.digest]]
    with restored(tmp_path / "two", source) as app:
        assert Part.get(app.context(), "b").sheet.read(app.context()) == b"second"
        assert Part.get(app.context(), "a").sheet.read(app.context()) == BODY
        assert set(findings(app).values()) == {"ok"}
    with restored(tmp_path / "three", source, at) as app:
        cleanup(app.graph())
        assert app.graph().blobs.digests() == [first.facts.digest]
        assert set(findings(app).values()) == {"ok"}


def restored(folder: Path, source: Path, at: str | None = None) -> App:
    """A new project with what a backup has."""
    folder.mkdir()
    (folder / "trails.toml").write_text('[project]\nname = "parts"\n', encoding="utf-8")
    with App.open(folder, declarations=False) as app:
        put_back(app, source, lambda _: None, RestoreRequest(at=at))
    return open_app(folder)


def test_a_blob_has_a_limit(tmp_path: Path) -> None:
    """It is refused while it is read, and nothing of it stays."""
    with open_app(tmp_path) as app:
        app.graph().most_blob = 1 << 20
        with pytest.raises(LimitError, match="more than 1 MiB"):
            Blob.put(app.context(), io.BytesIO(bytes(2 << 20)))
        assert not any(path.is_file() for path in (tmp_path / ".trails").rglob("*.blob"))


# --- REST and the command line ---------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    """A server on a project with a part p that has a blob."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "trails.toml").write_text('[project]\nname = "parts"\n', encoding="utf-8")
    (folder / "app.py").write_text(APP, encoding="utf-8")
    with App.open(folder, strict=True) as app:
        kernel = kernel_of(app)
        app.graph().most_blob = 1 << 20
        serving = ThreadedServer(build_app({"main": kernel}))
        client = RestClient(serving.port)
        got = client.send(
            "POST", "/graphs/main/blobs?name=Gr%C3%B6%C3%9Fe.png", BODY, content_type="image/png"
        )
        assert got.status == 201, got.body
        blob = json.loads(got.body)["blob"]
        create = {"op": "create", "type": "Part", "data": {"code": "a/b", "sheet": blob}}
        client.post("mutate", {"operations": [create]})
        yield client
        serving.close()
        kernel.close()


CONTENT = "/graphs/main/kg/Part/a%2Fb/fields/sheet/content"
ETAG = f'"{sha256(BODY).hexdigest()}"'


@pytest.mark.req("E7")
def test_content_is_served_to_be_saved(served: RestClient) -> None:
    """With its media type, its name and its digest."""
    got = served.send("GET", CONTENT)
    assert (got.status, got.body) == (200, BODY)
    assert got.headers["content-type"] == "image/png"
    assert got.headers["etag"] == ETAG
    assert got.headers["content-disposition"] == (
        "attachment; filename*=UTF-8''Gr%C3%B6%C3%9Fe.png"
    )
    head = served.send("HEAD", CONTENT)
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(BODY)))
    assert served.send("GET", CONTENT, if_none_match=ETAG).status == 304


@given(st.integers(0, 256_500), st.integers(0, 70_000))
@settings(max_examples=25, deadline=None)
def test_every_range_is_served(served: RestClient, start: int, length: int) -> None:
    """A part of it, or an error that says how much there is."""
    got = served.send("GET", CONTENT, range=f"bytes={start}-{start + length}")
    if start >= len(BODY):
        assert got.status == 416
        assert got.headers["content-range"] == f"bytes */{len(BODY)}"
        return
    end = min(start + length + 1, len(BODY))
    assert (got.status, got.body) == (206, BODY[start:end])
    assert got.headers["content-range"] == f"bytes {start}-{end - 1}/{len(BODY)}"


def test_ranges_that_are_special(served: RestClient) -> None:
    """From the end, to the end, of another version, several, and none."""
    assert served.send("GET", CONTENT, range="bytes=-10").body == BODY[-10:]
    assert served.send("GET", CONTENT, range="bytes=255990-").body == BODY[255_990:]
    assert served.send("GET", CONTENT, range="bytes=0-1", if_range='"other"').status == 200
    for header in ("bytes=0-1,4-5", "bytes=9-1", "lines=1-2", "bytes=x"):
        assert served.send("GET", CONTENT, range=header).status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("kg/Part/none/fields/sheet/content", 404),
        ("kg/Part/a%2Fb/fields/code/content", 404),
        ("kg/Part/a%2Fb/fields/more/content", 404),
        ("kg/Part/a%2Fb/fields/secret/content", 404),
        ("kg/Nope/x/fields/sheet/content", 404),
        ("kg/Part/a%2Fb/fields/sheet/content?branch=none", 404),
        ("kg/Part/a%2Fb/fields/%00%ff/content", 404),
        ("kg/Part/a%2Fb/fields/sheet/content?more=1", 422),
    ],
)
def test_what_is_not_there_is_not_found(served: RestClient, path: str, status: int) -> None:
    """A typed error, whatever is asked for."""
    got = served.send("GET", f"/graphs/main/{path}")
    assert got.status == status, got.body
    assert path.endswith("%ff/content") or json.loads(got.body)["detail"]


@pytest.mark.parametrize(
    ("query", "headers", "body", "status"),
    [
        ("", {"content_type": "nonsense"}, b"x", 400),
        ("?name=%0Ax", {}, b"x", 400),
        ("?nope=1", {}, b"x", 422),
        ("", {}, bytes((1 << 20) + 1), 413),
        ("?branch=none", {}, b"x", 404),
    ],
)
def test_what_can_not_be_put(
    served: RestClient, query: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    """A typed error, and nothing is kept."""
    got = served.send("POST", f"/graphs/main/blobs{query}", body, **headers)
    assert got.status == status, got.body
    assert json.loads(got.body)["detail"]


def test_a_model_sees_what_a_blob_is_and_how_a_text_begins(served: RestClient) -> None:
    """Digest, size, media type; of a text some of it, cut between characters."""
    text = "Größe " * 1000
    got = served.send(
        "POST", "/graphs/main/blobs?name=a.txt", text.encode(), content_type="text/plain; charset=x"
    )
    create = {
        "op": "create",
        "type": "Part",
        "data": {"code": "t", "sheet": json.loads(got.body)["blob"]},
    }
    served.post("mutate", {"operations": [create]})
    for code in ("t", "a%2Fb"):
        seen = served.get(f"kg/Part/{code}/fields/sheet")["blob"]
        if code == "t":
            assert text.startswith(seen["preview"])
            assert seen["truncated"]
            assert (seen["media_type"], seen["size"]) == ("text/plain", len(text.encode()))
        else:
            assert seen["digest"] == sha256(BODY).hexdigest()
            assert "preview" not in seen


def test_the_command_line_keeps_and_writes_files(tmp_path: Path) -> None:
    """Without a server; the file comes back byte for byte, and errors say what is wrong."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "parts"\n', encoding="utf-8")
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    (tmp_path / "sheet.png").write_bytes(BODY)
    shell = Shell(tmp_path)
    put = shell.json("blob", "put", "sheet.png")
    assert (put["media_type"], put["size"], put["name"]) == ("image/png", len(BODY), "sheet.png")
    create = {"op": "create", "type": "Part", "data": {"code": "p", "sheet": put["blob"]}}
    shell.json("mutate", "--operations", shell.write("change.json", [create]))
    assert shell.json("blob", "get", "Part/p", "sheet", "-o", "out.png")["bytes"] == len(BODY)
    assert (tmp_path / "out.png").read_bytes() == BODY
    assert "there is no Part 'q'" in shell.error("blob", "get", "Part/q", "sheet")
    assert "no such file" in shell.error("blob", "put", "none.png")
    assert "write Type/id" in shell.error("blob", "get", "Part", "sheet")


def test_the_limits_are_settings() -> None:
    """The size of one blob, and what an actor may keep without naming it."""
    given = Settings(Project("p"), {"main": GraphSettings(budgets=Budgets(blob_mb=3, spool_mb=7))})
    with App(Part, settings=given) as app:
        kernel = kernel_of(app)
        assert (app.graph().most_blob, app.graph().most_unnamed) == (3 << 20, 7 << 20)
        kernel.close()
