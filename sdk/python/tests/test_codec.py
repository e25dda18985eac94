"""JSON to typed values and back."""

import json
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict
from uuid import UUID

import pydantic
import pytest
from google.protobuf.struct_pb2 import Value
from orbit_api.workflow.v1.payload_pb2 import Payload
from typing_extensions import NotRequired

from orbit import PayloadError, PermanentError, payloads
from orbit.codec import reader


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    sku: str
    quantity: int = 1
    parts: "list[Item]" = field(default_factory=list)


class Address(TypedDict):
    street: str
    zip: NotRequired[str]


class Model(pydantic.BaseModel):
    name: str
    when: datetime


@dataclass
class WithModel:
    model: Model
    n: int


OrderId = NewType("OrderId", str)


NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (Any, '{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        (dict, '{"a": 1}', {"a": 1}),
        (int, "123456789012345678901234567890", 123456789012345678901234567890),
        (int, "3.0", 3),
        (float, "3", 3.0),
        (None, "null", None),
        (Optional[str], "null", None),  # noqa: UP045 (both spellings occur)
        (str | None, '"a"', "a"),
        (int | str, '"a"', "a"),
        (list[int], "[1, 2]", [1, 2]),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (set[str], '["a", "a"]', {"a"}),
        (dict[str, Colour], '{"x": "red"}', {"x": Colour.RED}),
        (Literal["a", 1], "1", 1),
        (datetime, '"2026-01-31T12:00:00Z"', NOON),
        (date, '"2026-01-31"', date(2026, 1, 31)),
        (UUID, '"00000000-0000-0000-0000-000000000001"', UUID(int=1)),
        (Decimal, '"1.10"', Decimal("1.10")),
        (OrderId, '"o-1"', "o-1"),
        (Annotated[int, "cents"], "5", 5),
        (Item, '{"sku": "a", "parts": [{"sku": "b", "quantity": 4}], "new": 1}', Item("a", 1, [Item("b", 4)])),
        (Address, '{"street": "a", "floor": 3}', {"street": "a", "floor": 3}),
        (
            WithModel,
            '{"model": {"name": "a", "when": "2026-01-31T12:00:00Z"}, "n": 1}',
            WithModel(Model(name="a", when=NOON), 1),
        ),
    ],
)
def test_json_is_read_as_its_hint_says(hint: Any, text: str, value: Any) -> None:
    assert reader(hint)(text) == value


@pytest.mark.parametrize(
    ("hint", "text", "message"),
    [
        (int, "true", r"\$: expected an integer, got true or false"),
        (int, "1.5", r"\$: expected an integer, got a number"),
        (str, "null", r"\$: expected a string, got null"),
        (list[int], '[1, "2"]', r"\$\[1\]: expected an integer, got a string"),
        (Item, '{"quantity": 1}', r"\$\.sku: is missing"),
        (Item, '{"sku": "a", "parts": [{}]}', r"\$\.parts\[0\]\.sku: is missing"),
        (Address, "[]", r"\$: expected an object, got a list"),
        (str | None, "1", r"\$: expected a string, got an integer$"),
        (Colour, '"green"', "one of 'red', 'blue'"),
        (Model, '{"when": 1}', r"\$\.name: Field required"),
        (int, "nope", "is no JSON"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(hint: Any, text: str, message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        reader(hint)(text)


def test_a_hint_that_no_payload_can_be_read_as_is_told_at_once() -> None:
    class Socket:
        pass

    with pytest.raises(TypeError, match="Socket is no type that a payload can be read as"):
        reader(Socket)


def test_typed_values_become_json() -> None:
    value = {
        "item": Item("ä"),
        "colour": Colour.RED,
        "when": datetime(2026, 1, 31, 12, tzinfo=timezone.utc),
        "id": UUID(int=1),
        "price": Decimal("1.10"),
        "some": (1, 2),
        "model": Model(name="a", when=datetime(2026, 1, 31, tzinfo=timezone.utc)),
        "big": 2**70,
    }
    assert json.loads(payloads.dumps(value)) == {
        "item": {"sku": "ä", "quantity": 1, "parts": []},
        "colour": "red",
        "when": "2026-01-31T12:00:00+00:00",
        "id": "00000000-0000-0000-0000-000000000001",
        "price": "1.10",
        "some": [1, 2],
        "model": {"name": "a", "when": "2026-01-31T00:00:00Z"},
        "big": 2**70,
    }
    assert payloads.dumps("\\u0000") == r'"\\u0000"'
    assert payloads.dumps({"t": "ä"}) == '{"t":"ä"}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), b"bytes", "\ud800", {1: object()}, "a\0b"])
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(PermanentError) as raised:
        payloads.dumps_output(value)
    assert raised.value.code == "OUTPUT_UNENCODABLE"


def test_an_output_above_the_limit_is_refused_by_its_bytes() -> None:
    assert payloads.dumps_output("x" * (2 * 1024 * 1024 - 2))
    with pytest.raises(PermanentError) as raised:
        payloads.dumps_output("ä" * (1024 * 1024))
    assert raised.value.code == "PAYLOAD_TOO_LARGE"


def test_both_forms_of_a_payload_are_read_and_no_form_is_refused() -> None:
    assert payloads.decode(Payload(json="[1]")) == [1]
    structured = Value()
    structured.struct_value.update({"n": 3, "x": 1.5, "l": [None, True]})
    assert payloads.decode(Payload(value=structured)) == {"n": 3, "x": 1.5, "l": [None, True]}
    assert isinstance(payloads.decode(Payload(value=structured))["n"], int)
    with pytest.raises(PayloadError):
        payloads.decode(Payload())
