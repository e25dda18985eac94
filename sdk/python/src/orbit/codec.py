"""JSON to typed Python values and back, as the hints of handlers and callers say.

Known without any other package: everything that JSON has, `list`, `tuple`, `set`, `dict`, unions, `Literal`, enums,
dataclasses, `TypedDict`, dates and times, `UUID`, `Decimal`. A hint with a Pydantic model in it is left to Pydantic.
A field that a dataclass does not have is passed over, so that callers may send more than a worker knows.
"""

import dataclasses
import enum
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import PurePath
from typing import Any
from uuid import UUID

import typing_extensions

from orbit.errors import PayloadError

# Makes a typed value of JSON text; raises `PayloadError`.
Reader = Callable[[str], Any]
# Makes a typed value of a JSON value; `path` names the place for errors.
_Convert = Callable[[Any, str], Any]

_UNIONS = (typing.Union, types.UnionType)
# What says something about a hint beside it.
_WRAPPERS = (
    typing.Annotated,
    typing_extensions.Required,
    typing_extensions.NotRequired,
    typing_extensions.ReadOnly,
)
_TEXTS: dict[Any, Callable[[str], Any]] = {
    datetime: lambda text: _datetime(text),
    date: date.fromisoformat,
    time: time.fromisoformat,
    UUID: UUID,
}
_FRACTION = re.compile(r"\.(\d+)")
_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "a string", type(None): "null"}


def reader(hint: Any) -> Reader:
    """Makes the reader for a hint, once for many values. `Any`, or no hint, gives JSON as it is."""
    if _has_model(hint):
        return _model_reader(hint)
    convert = _converter(hint)

    def read(text: str) -> Any:
        try:
            value = json.loads(text)
        except ValueError as error:
            raise PayloadError(f"the payload is no JSON: {error}") from error
        return value if convert is None else convert(value, "$")

    return read


def to_json(value: Any) -> Any:
    """What stands for a value in JSON, one level of it: for `json`'s `default`. Raises `TypeError` if nothing does."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID | Decimal | PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__name__} is nothing that JSON can say")


# --- Pydantic ---------------------------------------------------------------------------------------------------------


def _has_model(hint: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether there is a Pydantic model anywhere in a hint."""
    if isinstance(hint, type) and hasattr(hint, "model_validate_json"):
        return True
    if any(_has_model(argument, seen) for argument in typing.get_args(hint)):
        return True
    kind = typing.get_origin(hint) or hint
    if not _has_fields(kind) or kind in seen:
        return hasattr(kind, "__pydantic_validator__")
    if hasattr(kind, "__pydantic_validator__"):
        return True
    return any(_has_model(field, seen | {kind}) for field in _hints(kind).values())


def _model_reader(hint: Any) -> Reader:
    # Only reached with a model at hand, so Pydantic is there.
    import pydantic

    adapter: Any = pydantic.TypeAdapter(hint)

    def read(text: str) -> Any:
        try:
            return adapter.validate_json(text)
        except pydantic.ValidationError as error:
            faults = "; ".join(f"{_place(fault['loc'])}: {fault['msg']}" for fault in error.errors(include_url=False))
            raise PayloadError(faults) from error

    return read


def _place(location: Iterable[Any]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


# --- Everything else --------------------------------------------------------------------------------------------------


def _converter(hint: Any) -> _Convert | None:
    """The function for a hint; None if JSON is taken as it is."""
    try:
        return _cached(hint)
    except TypeError:  # A hint that cannot be hashed, for example `Literal` of a list.
        return _make(hint)


@lru_cache(maxsize=1024)
def _cached(hint: Any) -> _Convert | None:
    return _make(hint)


def _make(hint: Any) -> _Convert | None:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object:
        return None
    if hint is None or hint is type(None):
        return _exactly(type(None))
    if isinstance(hint, typing.NewType):
        return _converter(hint.__supertype__)
    if origin in _WRAPPERS:
        return _converter(arguments[0])
    if origin is typing.Literal or origin is typing_extensions.Literal:
        return _one_of(arguments)
    if origin in _UNIONS:
        return _union(arguments)
    if hint in (bool, int, float, str):
        return _exactly(hint)
    if hint in _TEXTS:
        return _text(hint)
    if hint is Decimal:
        return _decimal
    kind = origin or hint
    if isinstance(kind, type):
        return _of_class(kind, arguments)
    # `Any`, a type variable, or something that only type checkers understand.
    return None


def _of_class(kind: type, arguments: tuple[Any, ...]) -> _Convert | None:
    if issubclass(kind, enum.Enum):
        return _enumeration(kind)
    if _has_fields(kind):
        return _fields(kind)
    if issubclass(kind, tuple) and arguments and arguments[-1] is not Ellipsis:
        return _tuple(arguments)
    if issubclass(kind, list | tuple | set | frozenset) or kind in (Sequence, Iterable):
        make: Any = kind if issubclass(kind, list | tuple | set | frozenset) else list
        return _items(make, arguments[0] if arguments else Any)
    if issubclass(kind, dict) or kind is Mapping:
        return _mapping(arguments[1] if len(arguments) == 2 else Any)
    raise TypeError(f"{kind.__qualname__} is no type that a payload can be read as")


def _exactly(kind: type) -> _Convert:
    def convert(value: Any, path: str) -> Any:
        # `True` is an `int` in Python and none in JSON.
        if type(value) is kind:
            return value
        if kind is float and type(value) is int:
            return float(value)
        if kind is int and type(value) is float and value.is_integer():
            return int(value)
        raise _wrong(path, _NAMES[kind], value)

    return convert


def _text(kind: Any) -> _Convert:
    parse = _TEXTS[kind]

    def convert(value: Any, path: str) -> Any:
        try:
            if isinstance(value, str):
                return parse(value)
        except ValueError:
            pass
        raise _wrong(path, f"the text of a {kind.__name__}", value)

    return convert


def _datetime(text: str) -> datetime:
    # Python 3.10 knows neither `Z` nor fractions other than of three or six digits.
    text = _FRACTION.sub(lambda found: "." + found[1][:6].ljust(6, "0"), text)
    return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)


def _decimal(value: Any, path: str) -> Any:
    try:
        if isinstance(value, str | int) and not isinstance(value, bool):
            return Decimal(value)
    except InvalidOperation:
        pass
    raise _wrong(path, "an integer or the text of a decimal number", value)


def _one_of(choices: tuple[Any, ...]) -> _Convert:
    def convert(value: Any, path: str) -> Any:
        for choice in choices:
            if type(choice) is type(value) and choice == value:
                return choice
        raise _wrong(path, "one of " + ", ".join(map(repr, choices)), value)

    return convert


def _enumeration(kind: type[enum.Enum]) -> _Convert:
    def convert(value: Any, path: str) -> Any:
        try:
            return kind(value)
        except ValueError:
            raise _wrong(path, "one of " + ", ".join(repr(member.value) for member in kind), value) from None

    return convert


def _union(arguments: tuple[Any, ...]) -> _Convert | None:
    converts = [_converter(argument) for argument in arguments]
    if None in converts:
        return None

    def convert(value: Any, path: str) -> Any:
        faults = []
        for attempt in converts:
            assert attempt is not None
            try:
                return attempt(value, path)
            except PayloadError as fault:
                faults.append(str(fault))
        # Of `X | None` only what X has to say helps.
        helpful = [fault for fault in faults if not fault.startswith(f"{path}: expected null,")] or faults
        raise PayloadError(" or ".join(dict.fromkeys(helpful)))

    return convert


def _items(make: Callable[[Iterable[Any]], Any], item: Any) -> _Convert:
    each = _converter(item)

    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise _wrong(path, "a list", value)
        if each is None:
            return value if make is list else make(value)
        return make([each(entry, f"{path}[{index}]") for index, entry in enumerate(value)])

    return convert


def _tuple(arguments: tuple[Any, ...]) -> _Convert:
    each = [_converter(argument) for argument in arguments]

    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, list) or len(value) != len(each):
            raise _wrong(path, f"a list of {len(each)}", value)
        return tuple(
            entry if one is None else one(entry, f"{path}[{index}]")
            for index, (one, entry) in enumerate(zip(each, value, strict=True))
        )

    return convert


def _mapping(item: Any) -> _Convert:
    each = _converter(item)

    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(path, "an object", value)
        if each is None:
            return value
        return {key: each(entry, f"{path}.{key}") for key, entry in value.items()}

    return convert


def _fields(kind: Any) -> _Convert:
    """Of a dataclass or a `TypedDict`."""
    is_dict = typing_extensions.is_typeddict(kind)
    # Found at first use: a class may have fields of its own kind.
    found: dict[str, tuple[_Convert | None, bool]] | None = None

    def convert(value: Any, path: str) -> Any:
        nonlocal found
        if found is None:
            required = _required_keys(kind) if is_dict else _required(kind)
            names = (
                _hints(kind) if is_dict else {f.name: _hints(kind)[f.name] for f in dataclasses.fields(kind) if f.init}
            )
            found = {name: (_converter(hint), name in required) for name, hint in names.items()}
        if not isinstance(value, dict):
            raise _wrong(path, "an object", value)
        given = dict(value) if is_dict else {}
        for name, (one, needed) in found.items():
            if name in value:
                given[name] = value[name] if one is None else one(value[name], f"{path}.{name}")
            elif needed:
                raise PayloadError(f"{path}.{name}: is missing")
        return given if is_dict else kind(**given)

    return convert


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or typing_extensions.is_typeddict(kind))


def _required(kind: Any) -> set[str]:
    missing = dataclasses.MISSING
    return {f.name for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing}


def _required_keys(kind: Any) -> set[str]:
    """Of a `TypedDict`. Python 3.10's own does not look at `NotRequired`, which is in `typing_extensions` there."""
    says = {name: typing.get_origin(hint) for name, hint in _hints(kind).items()}
    optional = {name for name, origin in says.items() if origin is typing_extensions.NotRequired}
    return set(kind.__required_keys__) - optional


def _hints(kind: Any) -> dict[str, Any]:
    return typing_extensions.get_type_hints(kind, include_extras=True)


def _wrong(path: str, wanted: str, value: Any) -> PayloadError:
    # The value itself may be a secret, so only its kind is told.
    kind = {dict: "an object", list: "a list", **_NAMES}.get(type(value), type(value).__name__)
    return PayloadError(f"{path}: expected {wanted}, got {kind}")
