"""What fits is shown, what does not is named, and the calls that continue give everything once."""

import json

import msgspec
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from trails.model.operations.pages import Call, Continued
from trails.model.results import Failure
from trails.request.fitting import Page, abridge, fit, fit_failure, fit_value

LEAST = 1000
TEXTS = st.one_of(
    st.text(max_size=60),
    st.integers(0, 2000).map('é\n"\x00👩‍👩‍👧'.__mul__),
)
ITEMS = st.lists(
    st.fixed_dictionaries({"name": st.text(max_size=10), "text": TEXTS, "n": st.integers(0, 9)}),
    max_size=80,
)


class Things(Continued, frozen=True):
    """A result with a list."""

    kind: str
    truncated: bool
    items: list[dict[str, object]]


def listing(items, start=0):
    """A page over a list, as a tool would make it."""

    def changes(at):
        return {"offset": at} if at < len(items) else None

    call = Call("list", {"wanted": "x", "offset": start})
    result = Things("things", truncated=False, items=items)
    return Page(result, "items", changes, len(items), start=start, call=call)


def answer(page, limit):
    """The answer to a call, which has at most so many characters."""
    whole = msgspec.json.encode(page.whole())
    text = fit(page, whole, limit, "")
    assert len(text.decode()) <= limit
    return json.loads(text)


@settings(phases=[Phase.generate], derandomize=True)
@given(items=ITEMS, limit=st.integers(LEAST, 6000))
def test_following_the_calls_gives_every_item_once(items, limit):
    """In order; a value that is not whole is listed with its size, and begins as the value does."""
    found, start = [], 0
    while True:
        page = answer(listing(items, start), limit)
        shortened = {each["at"]: each for each in page.get("left_out", {}).get("values", ())}
        for at, shown in enumerate(page["items"]):
            item, cut = items[start + at], shortened.pop(f"/items/{at}/text", None)
            if cut is None:
                assert shown == item
            else:
                assert {**shown, "text": 0} == {**item, "text": 0}
                assert item["text"].startswith(shown["text"])
                assert (cut["shown"], cut["of"]) == (len(shown["text"]), len(item["text"]))
            found.append(item)
        assert not shortened
        following = page.get("next")
        if following is None:
            break
        assert page["items"]
        assert page["truncated"]
        arguments = following["arguments"]
        assert arguments == {"wanted": "x", "offset": start + len(page["items"])}
        assert page["left_out"]["of"] == len(items)
        start = arguments["offset"]
    assert found == items


@settings(phases=[Phase.generate], derandomize=True)  # large examples take long to shrink
@given(
    value=st.dictionaries(
        st.text(max_size=20),
        st.recursive(
            st.none() | st.integers(-9, 9) | TEXTS,
            lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(), inner),
            max_leaves=30,
        ),
        max_size=30,
    ),
    limit=st.integers(LEAST, 9000),
)
def test_any_result_fits_and_every_cut_is_listed(value, limit):
    """Each cut is at the path that it names, with what is shown and how much there is."""
    text = msgspec.json.encode(value)
    size = len(text.decode())
    short = json.loads(fit(value, text, limit, Call("again", {"max_chars": size})))
    if size <= limit:
        assert short == json.loads(text)
        return
    assert len(msgspec.json.encode(short).decode()) <= limit
    said = short.pop("left_out")
    assert said["next"] == {"tool": "again", "arguments": {"max_chars": size}}
    assert said["values"]
    for cut in said["values"]:
        was, shown = (reach(each, cut["at"]) for each in (value, short))
        assert (len(shown), len(was)) == (cut["shown"], cut["of"])
    if "more_values" not in said and all(cut["at"] for cut in said["values"]):
        for cut in said["values"]:
            put(value, cut["at"], reach(short, cut["at"]))
        assert short == value


def steps(pointer):
    """The keys of a JSON Pointer."""
    return [each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]]


def reach(value, pointer):
    """What a JSON Pointer names."""
    for step in steps(pointer):
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def put(value, pointer, new):
    """Replace it."""
    *path, last = steps(pointer)
    for step in path:
        value = value[int(step)] if isinstance(value, list) else value[step]
    value[int(last) if isinstance(value, list) else last] = new


def test_a_value_that_can_be_read_elsewhere_says_where():
    """The exact call, with the position where the shown part ends."""
    items = [{"id": "a", "text": "x" * 9000}, {"id": "b", "text": "y"}]

    def locate(item, path, shown):
        return Call("read_record_field", {"record": item["id"], "field": path[-1], "offset": shown})

    page = msgspec.structs.replace(listing(items), locate=locate)
    found = answer(page, LEAST)
    (cut,) = found["left_out"]["values"]
    assert cut["read"]["tool"] == "read_record_field"
    assert cut["read"]["arguments"] == {"record": "a", "field": "text", "offset": cut["shown"]}
    assert 0 < cut["shown"] < 1000


def test_a_value_of_unknown_origin_says_how_large_an_answer_has_to_be():
    """The call that begins with its item, and has room for it."""
    items = [{"text": "x" * 20}, {"text": "y" * 9000}]
    found = answer(listing(items), 2000)
    (cut,) = found["left_out"]["values"]
    arguments = cut["read"]["arguments"]
    again = answer(listing(items, arguments["offset"]), arguments["max_chars"])
    assert again["items"] == items[1:]
    assert "left_out" not in again


def test_long_arguments_are_named_and_not_repeated():
    """A query of many pages would fill every answer."""
    call = abridge(Call("graph_query", {"query": "x" * 5000, "offset": 7}), 1000)
    assert call == Call("graph_query", {"offset": 7}, ("query",))
    assert abridge(call, 1000) == call


def test_a_failure_is_bounded_too():
    """Its message and its data; what is not JSON is left to the surface."""
    failure = Failure("semantic", "conflict", "m" * 9000, {"list": ["x" * 50] * 900})
    short = fit_failure(failure, 2000)
    assert len(short.message) + len(msgspec.json.encode(short.data)) <= 2100
    assert "more characters" in short.message
    assert short.data["left_out"]["values"][0]["of"] == 900
    odd = Failure("semantic", "x", "m" * 9000, {"a": "\ud800"})
    assert fit_failure(odd, 2000) is odd


def test_an_object_of_very_many_members_shows_the_first():
    """And says how many there are."""
    found = fit_value({f"k{n}": n for n in range(5000)}, LEAST, "Ask for less.", 60000)
    assert found["left_out"]["values"] == [
        {"at": "", "shown": len(found) - 1, "of": 5000, "unit": "members"}
    ]
    assert found["k0"] == 0
