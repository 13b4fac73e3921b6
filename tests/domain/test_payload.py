"""JSON that means the same everywhere."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.domain.checks.payload import encode
from leasehold.domain.errors import InvalidInput, NotSerializable
from leasehold.domain.outcome import ERROR_LIMIT, clean_error

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_what_can_be_stored_comes_back_as_it_was(value):
    assert json.loads(encode(value, "value")) == value


@given(
    st.recursive(st.just("\0") | st.just("\ud800") | st.just(float("nan")), lambda x: st.lists(x, min_size=1))
)
def test_what_cannot_be_stored_is_refused_naming_the_field(value):
    with pytest.raises(NotSerializable) as caught:
        encode({"a": value}, "task")
    assert caught.value.field.startswith("task.a")


def test_a_key_that_is_not_text_is_refused():
    with pytest.raises(InvalidInput):
        encode({("a", 1): 1}, "task")


@given(st.text(st.characters(codec=None)))
def test_a_cleaned_error_can_be_stored_and_is_short(text):
    cleaned = clean_error(text * 50)
    assert "\0" not in cleaned
    assert len(cleaned.encode("utf-8")) <= ERROR_LIMIT + 16
    assert clean_error(cleaned) == cleaned or len(cleaned.encode()) > ERROR_LIMIT - 32
