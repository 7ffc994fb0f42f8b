"""Frozen dataclasses behave like those of the standard library."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, field, fields, replace

import pytest

from recollect.frozen_dataclass import frozen_dataclass


@frozen_dataclass
class Point:
    """A point."""

    x: int
    y: int = 2
    labels: list[str] = field(default_factory=list, hash=False)
    note: str = field(default="", compare=False, repr=False)


@frozen_dataclass(kw_only=True)
class Labelled(Point):
    label: str
    double: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "double", 2 * self.x)


@frozen_dataclass(eq=False)
class Unique:
    value: int = 0

    def __repr__(self) -> str:
        return "unique"


def test_construction_with_defaults_factories_and_keywords() -> None:
    first, second = Point(1), Point(1)
    assert (first.x, first.y, first.labels) == (1, 2, [])
    assert first.labels is not second.labels
    made = Labelled(1, label="a")
    assert (made.y, made.label, made.double) == (2, "a", 2)
    with pytest.raises(TypeError):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Labelled(1, 2, [], "", "a")  # type: ignore[misc, call-arg]


def test_instances_cannot_be_changed_and_have_no_dictionary() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.x
    with pytest.raises(FrozenInstanceError):
        point.z = 2  # type: ignore[attr-defined]
    assert not hasattr(point, "__dict__")


def test_equality_and_hash_use_the_compared_fields() -> None:
    assert Point(1, note="a") == Point(1, note="b") != Point(2)
    assert hash(Point(1, note="a")) == hash(Point(1, labels=["x"], note="b"))
    assert Point(1) != Labelled(1, label="a")
    assert Unique() != Unique()
    assert len({Unique(), Unique()}) == 2


def test_the_representation_has_the_printed_fields() -> None:
    assert repr(Point(1, note="hidden")) == "Point(x=1, y=2, labels=[])"
    assert repr(Unique()) == "unique"


def test_the_functions_of_dataclasses_pickle_and_copy_work() -> None:
    made = Labelled(1, 5, ["x"], label="a")
    assert replace(made, x=2, label="b") == Labelled(2, 5, ["x"], label="b")
    assert asdict(made) == {"x": 1, "y": 5, "labels": ["x"], "note": "", "label": "a", "double": 2}
    assert [each.name for each in fields(Point)] == ["x", "y", "labels", "note"]
    assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)
    match made:
        case Point(1, y):
            assert y == 5
