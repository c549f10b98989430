"""A text index: what is put is there after a flush, and damage is noticed."""

import random
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trails.errors import CorruptionError, StorageError
from trails.views.text.analysis import Analyzer
from trails.views.text.index import IndexedText, TextIndex, digest, items

ANALYZER = Analyzer()


def entries(index):
    """What the index holds."""
    return sorted(index.entries())


def expected(texts):
    """What an index of these texts holds."""
    return sorted(
        IndexedText(handle, item, digest(text))
        for handle, held in texts.items()
        for item, text in enumerate(items(held))
    )


@pytest.fixture(params=["disk", "memory"])
def index(request, tmp_path):
    """An empty index."""
    found = TextIndex(tmp_path / "index" if request.param == "disk" else None, ANALYZER)
    yield found
    found.close()


def test_what_is_put_is_there_after_a_flush(index):
    """Putting again replaces, None removes, and nothing is seen before the flush."""
    index.put({"Note/1": "one", "Note/2": "two", "Note/3": ("a", "b", "c")})
    assert index.documents == 0
    index.flush()
    assert index.documents == 5
    index.put({"Note/1": None, "Note/2": "zwei", "Note/3": ("a",), "Note/9": None})
    index.flush()
    assert entries(index) == expected({"Note/2": "zwei", "Note/3": ("a",)})


def test_a_second_put_within_a_flush_replaces_the_first(index):
    """The last text of a handle counts."""
    index.put({"Note/1": "one"})
    index.put({"Note/1": "two"})
    index.flush()
    assert entries(index) == expected({"Note/1": "two"})


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from([f"T/{n}" for n in range(6)]),
            st.none() | st.text(max_size=12) | st.tuples(st.text(max_size=3), st.text(max_size=3)),
        )
        | st.none(),
        max_size=8,
    )
)
@settings(max_examples=25, deadline=None)
def test_any_sequence_of_puts_leaves_the_last_texts(steps):
    """The index agrees with a dictionary that does the same; None is a flush."""
    index, model = TextIndex(None, ANALYZER), {}
    for step in [*steps, None]:
        if step is None:
            index.flush()
            assert entries(index) == expected(model)
        else:
            index.put(step)
            model |= step


def test_it_is_there_when_opened_again(tmp_path):
    """A flush is durable; what was not flushed is gone."""
    index = TextIndex(tmp_path, ANALYZER)
    index.fill((f"Note/{n}", f"text {n}") for n in range(500))
    index.flush()
    index.put({"Note/1": "unflushed"})
    index.close()
    again = TextIndex(tmp_path, ANALYZER)
    assert entries(again) == expected({f"Note/{n}": f"text {n}" for n in range(500)})
    again.put({"Note/1": None})
    again.flush()
    assert again.documents == 499


def test_another_analyzer_asks_for_a_rebuild(tmp_path):
    """An index that was written with other words is not used."""
    TextIndex(tmp_path, ANALYZER).close()
    with pytest.raises(CorruptionError, match="another analyzer"):
        TextIndex(tmp_path, Analyzer("english"))


@pytest.mark.parametrize("seed", range(3))
def test_damage_is_noticed(tmp_path, seed):
    """A flipped bit, a cut or a missing file gives an error and never another answer."""
    rng = random.Random(seed)
    whole = tmp_path / "whole"
    index = TextIndex(whole, ANALYZER)
    texts = {f"Note/{n}": f"some words {n} {n % 7}" for n in range(300)}
    index.fill(texts.items())
    index.flush()
    index.put({"Note/5": None})
    index.flush()
    index.close()
    right = expected(texts | {"Note/5": None})
    for path in [path for path in whole.iterdir() if path.stat().st_size]:
        for damage in range(12):
            copy = tmp_path / f"{path.name}-{damage}"
            shutil.copytree(whole, copy)
            hurt = bytearray(path.read_bytes())
            if damage == 0:
                hurt = hurt[: rng.randrange(len(hurt))]
            else:
                hurt[rng.randrange(len(hurt))] ^= 1 << rng.randrange(8)
            (copy / path.name).write_bytes(hurt)
            try:
                found = entries(TextIndex(copy, ANALYZER))
            except StorageError:
                continue
            assert found == right
    assert entries(TextIndex(whole, ANALYZER)) == right


def test_a_missing_file_is_noticed(tmp_path):
    """Each file of a segment is needed."""
    index = TextIndex(tmp_path, ANALYZER)
    index.fill([("Note/1", "one")])
    index.flush()
    index.close()
    for path in list(tmp_path.iterdir()):
        if path.suffix in {".idx", ".term", ".store", ".pos", ".fast", ".fieldnorm"}:
            content = path.read_bytes()
            path.unlink()
            with pytest.raises(StorageError):
                TextIndex(tmp_path, ANALYZER)
            path.write_bytes(content)
