"""Random data for the worlds, and random things to hide in them."""

from hypothesis import strategies as st
from tests.journeys.access.hidden_parts import TYPES, Hidden, Row

FIELDS = sorted((name, each) for name, said in TYPES.items() for each in said.fields)


def some(items: list) -> st.SearchStrategy[list]:
    """A good number of items out of very many."""
    return st.lists(st.sampled_from(items), min_size=30, max_size=60)


_SMALL = st.integers(0, 4)
_WORDS = st.sampled_from(["x", "y", "Zed", "née", "long " * 20])


@st.composite
def hidden(draw: st.DrawFn) -> Hidden:
    """Some types and some fields."""
    return Hidden(
        draw(st.frozensets(st.sampled_from(sorted(TYPES)), max_size=2)),
        draw(st.frozensets(st.sampled_from(FIELDS), max_size=5)),
    )


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """Offices, people of all kinds with bosses, notes about them, edges between them."""
    made: list[Row] = []
    offices = [("Office", f"o{each}") for each in range(draw(st.integers(1, 3)))]
    for name, key in offices:
        floor, rent = draw(st.none() | _SMALL), draw(st.none() | st.just(1.5))
        made.append((name, key, {"room": draw(_WORDS), "floor": floor, "rent": rent}))
    people: list[tuple[str, str]] = []
    for number in range(draw(st.integers(2, 9))):
        kind = draw(st.sampled_from(["Person", "Employee", "Chief"]))
        values: dict[str, object] = {
            "code": f"p{number}",
            "name": draw(_WORDS),
            "alias": draw(st.none() | st.just(f"a{number}")),
            "age": draw(st.none() | _SMALL),
            "tags": draw(st.lists(st.sampled_from(["r", "s", "t"]), max_size=2, unique=True)),
            "boss": draw(st.none() | st.sampled_from(people)) if people else None,
        }
        if kind != "Person":
            values["badge"] = draw(st.none() | st.just(f"b{number}"))
            values["office"] = draw(st.none() | st.sampled_from(offices))
        if kind == "Chief":
            values["bonus"] = draw(st.none() | _SMALL)
        people.append((kind, f"p{number}"))
        made.append((*people[-1], values))
    made += _notes(draw, people)
    made += _edges(draw, people, offices)
    return made


def _notes(draw: st.DrawFn, people: list[tuple[str, str]]) -> list[Row]:
    chiefs = [each for each in people if each[0] == "Chief"]
    some = st.lists(st.sampled_from(people), max_size=3, unique=True)
    return [
        (
            "Note",
            str(number),
            {
                "number": number,
                "about": draw(st.none() | st.sampled_from(people)),
                "readers": draw(some),
                "chief": draw(st.none() | st.sampled_from(chiefs)) if chiefs else None,
                "text": draw(st.none() | _WORDS),
            },
        )
        for number in range(draw(st.integers(0, 4)))
    ]


def _edges(
    draw: st.DrawFn, people: list[tuple[str, str]], offices: list[tuple[str, str]]
) -> list[Row]:
    pairs = draw(
        st.lists(
            st.tuples(st.sampled_from(people), st.sampled_from(people)), max_size=6, unique=True
        )
    )
    made: list[Row] = [
        ("Knows", f"k{at}", {"source": one, "target": two, "since": draw(st.none() | _SMALL)})
        for at, (one, two) in enumerate(pairs)
    ]
    staff = [each for each in people if each[0] != "Person"]
    for at, each in enumerate(staff[:3]):
        office = draw(st.sampled_from(offices))
        made.append(("Sits", f"s{at}", {"source": each, "target": office, "desk": "d"}))
    return made
