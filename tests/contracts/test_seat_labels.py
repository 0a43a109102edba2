"""What stands on rows and chairs: from rules and lists, each once, and described again as briefly as it can be."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.contracts.event_file import SeatedSection
from shared.contracts.event_parts.seat_labels import numbers, rule_of

RULES = {
    "consecutive": "1 2 3 4", "odd": "1 3 5 7", "even": "2 4 6 8", "odd from the right": "7 5 3 1",
    "even from 102 from the left": "102 104 106 108", "consecutive from 0": "0 1 2 3",
    "consecutive from 101 from the right": "104 103 102 101",
}  # fmt: skip


def section(**fields: Any) -> SeatedSection:
    given = {"section_id": "A", "name": "Stalls", "kind": "seated", "rows": 2, "seats_per_row": 3, "price_minor": 1}
    return SeatedSection.model_validate(given | fields)


@pytest.mark.parametrize(("rule", "labels"), RULES.items())
def test_a_rule_numbers_seats_from_left_to_right(rule: str, labels: str) -> None:
    assert numbers(rule, 4) == tuple(labels.split())
    assert numbers(rule_of(labels.split()) or "", 4) == tuple(labels.split())


@given(st.sampled_from(["consecutive", "odd", "even"]), st.integers(0, 500_000), st.booleans(), st.integers(1, 60))
def test_what_a_rule_gives_is_described_by_a_rule(kind: str, half: int, from_right: bool, count: int) -> None:
    start = {"consecutive": half, "odd": 2 * half + 1, "even": 2 * half}[kind]
    labels = numbers(f"{kind} from {start}{' from the right' if from_right else ''}", count)
    assert numbers(rule_of(labels) or "", count) == labels
    assert len(set(labels)) == count


def test_other_labels_have_no_rule() -> None:
    assert [rule_of(labels) for labels in ([], ["1", "2", "4"], ["A", "B"], ["01", "02"], ["1", "1"])] == [None] * 5


def test_rows_and_seats_have_the_labels_of_the_file() -> None:
    labels = section(
        rows=["A", {"row": "AA", "seats": [1, "2b", "C"]}, 13], seats="odd from the right", seats_per_row=3
    ).labels
    assert labels.front(3) == [("A", ("5", "3", "1")), ("AA", ("1", "2b", "C")), ("13", ("5", "3", "1"))]
    assert (labels.seat(1, 2), labels.find("AA", "C"), labels.find("A", "5")) == (("AA", "C"), (1, 2), (0, 0))
    assert [labels.find(*seat) for seat in (("1", "1"), ("AA", "3"), ("a", "1"))] == [None] * 3
    counted = section().labels
    assert (counted.rows, counted.find("2", "3"), counted.find("02", "3")) == (("1", "2"), (1, 2), None)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a row twice": ({"rows": ["A", "B", "A"]}, "two rows are called A"),
    "a seat twice": ({"seats": [1, 2, 1]}, "two seats of row 1 are called 1"),
    "a seat of one row twice": ({"rows": ["A", {"row": "B", "seats": [1, 1, 2]}]}, "two seats of row B are called 1"),
    "a longer row": ({"rows": ["A", {"row": "B", "seats": [1, 2, 3, 4]}]}, "row B has 4 seats with a label, and"),
    "a shorter row": ({"seats": [1, 2]}, "a section of their own"),
    "a long label": ({"rows": ["A", "ROWNUMBER9"]}, "a label has 1 to 8 letters from a to z or digits"),
    "a label with a blank": ({"rows": ["A 1", "B"]}, "a label has 1 to 8 letters"),
    "a label with a hyphen": ({"seats": ["1-a", "2", "3"]}, "a label has 1 to 8 letters"),
    "a letter of another script": ({"rows": ["Ä", "B"]}, "letters from a to z"),
    "an empty label": ({"rows": ["", "B"]}, "a label has"),
    "a truth": ({"rows": [True, "B"]}, "a label has"),
    "a rule that is none": ({"seats": "odd from the middle"}, "consecutive, odd or even"),
    "an odd start of even seats": ({"seats": "even from 3"}, "3 is not even"),
    "a number": ({"seats": 5}, "or a list of labels"),
    "no row": ({"rows": []}, "at least 1"),
    "too many rows": ({"rows": [str(n) for n in range(1001)]}, "at most 1000"),
    "a level of no row": ({"rows": ["A", "B"], "price_levels": [{"name": "x", "rows": ["A", "C"], "price_minor": 1}]},
                          "there is no row C; the rows are from A to B"),
    "a level backwards": ({"rows": ["A", "B"], "price_levels": [{"name": "x", "rows": ["B", "A"], "price_minor": 1}]},
                          "from the front"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "says"), WRONG.values(), ids=WRONG)
def test_labels_that_do_not_fit_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        section(**fields)
