"""Power cuts while a file takes the place of another: the old one or the new one, whole."""

import random
from hashlib import sha256

import pytest
from tests.journeys.durability.campaign import fresh_seed
from tests.journeys.durability.power import lose, run_until

from trails.app.clients.configuration import replace_configuration
from trails.files import replace_file, replacing
from trails.identity.tokens import TokenFile
from trails.log.blobs import BlobStore
from trails.model.actors import TokenRequest

OLD = b"old content, which is longer than the new one"
NEW = b"new content"


def replace(folder):
    """As a whole."""
    replace_file(folder / "file", NEW)


def stream(folder):
    """In blocks, as an export is."""
    with replacing(folder / "file") as file:
        for at in range(len(NEW)):
            file.write(NEW[at : at + 1])


def configure(folder):
    """As the configuration of a client."""
    replace_configuration(folder / "file", OLD, NEW)


def cut(folder, write, step, rng, *, syncs=True):
    """One power cut; whether the file was reported as written before."""
    place = folder / "place"
    place.mkdir(parents=True)
    (place / "file").write_bytes(OLD)
    record, finished = run_until(step, [place], lambda: write(place), syncs=syncs)
    lose(record, [place], rng)
    found = (place / "file").read_bytes()
    assert found == NEW if finished else found in (OLD, NEW)
    return finished


@pytest.mark.parametrize("write", [replace, stream, configure])
def test_a_file_that_is_replaced_is_the_old_or_the_new_one(tmp_path, write):
    """At every step; once it is reported, the new one."""
    rng = random.Random(fresh_seed())
    for round_ in range(3):
        step = 0
        while not cut(tmp_path / f"{round_}-{step}", write, step, rng):
            step += 1
        assert step >= 3


def test_tokens_survive_a_power_cut(tmp_path):
    """A token that was shown to somebody is in the file."""
    rng = random.Random(fresh_seed())
    for step in range(8):
        data = tmp_path / str(step) / ".trails"
        tokens = TokenFile(data)
        tokens.issue(TokenRequest(actor="ann"))
        record, finished = run_until(
            step, [data], lambda to=tokens: to.issue(TokenRequest(actor="ben"))
        )
        lose(record, [data], rng)
        actors = [each.actor for each in tokens.list()]
        assert actors in ([["ann", "ben"]] if finished else [["ann"], ["ann", "ben"]])
    assert finished


def test_without_syncs_a_file_is_lost(tmp_path):
    """The simulation bites."""

    def lose_often():
        for at in range(20):
            cut(tmp_path / str(at), replace, None, random.Random(at), syncs=False)

    with pytest.raises(AssertionError):
        lose_often()


CONTENT = bytes(range(256)) * 900
DIGEST = sha256(CONTENT).hexdigest()


def blobs_in(folder):
    """A store of blobs, with its temporary files beside it."""
    return BlobStore(folder / "blobs", lambda: folder / "tmp")


def put_blob(folder):
    """Keep content."""
    blobs_in(folder).put(CONTENT)


def name_blob(folder):
    """Move content to its final place, as a commit does that names it."""
    blobs_in(folder).keep({DIGEST}, 7)


@pytest.mark.parametrize(("work", "prepared"), [(put_blob, None), (name_blob, put_blob)])
def test_a_blob_survives_a_power_cut_once_it_was_reported(tmp_path, work, prepared):
    """At every step; what was there before a commit began to name it is never lost."""
    rng, finished, step = random.Random(fresh_seed()), False, 0
    while not finished:
        place = tmp_path / str(step) / "graph"
        (place / "tmp").mkdir(parents=True)
        if prepared is not None:
            prepared(place)
        record, finished = run_until(step, [place], lambda at=place: work(at))
        lose(record, [place], rng)
        store = blobs_in(place)
        kept = store.size_of(DIGEST)
        if finished or prepared is not None:
            assert kept == len(CONTENT)
        if kept is not None:
            assert store.is_whole(DIGEST)
            assert b"".join(store.blocks(DIGEST, len(CONTENT))) == CONTENT
        if finished and prepared is not None:
            assert store.digests() == [DIGEST]
        step += 1
    assert step > 4
