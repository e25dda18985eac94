"""Whether what came is what was expected.

An expectation is data. A mapping expects at least its keys, a list exactly its items, a scalar an equal value of the
same kind (`1` is not `true`). A mapping whose keys all begin with `$` holds conditions, all of which must be met:

| condition | met by |
| --- | --- |
| `$any: true` | anything that is not null |
| `$above: n`, `$below: n`, `$least: n` | a number greater than n, less than n, n or more |
| `$contains: x` | a text with x in it, or a list with an item that matches x |
| `$like: pattern` | a text in which the regular expression is found |
| `$in: [x, y]` | what matches one of these |
| `$not: x` | what does not match x |
| `$length: x` | a list or a text whose length matches x |
| `$is: name` | the first time anything, which gets that name; later an equal value |
| `$by_language: {go: x, default: y}` | what matches the part for the language that is tested |
| `$unordered: [x, y]` | a list with as many items, each of which matches another one of these |
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Context:
    """What expectations and arguments may refer to."""

    language: str
    # Values that `$is` has named.
    names: dict[str, Any] = field(default_factory=dict)


class UnknownCondition(Exception):
    """A scenario uses a condition that there is not."""


def mismatch(expected: Any, came: Any, context: Context, path: str = "") -> str | None:
    """Tells the first difference, with its place; None if there is none."""
    where = path or "it"
    if isinstance(expected, Mapping):
        if expected and all(isinstance(key, str) and key.startswith("$") for key in expected):
            # Names are bound last: only by a value that meets the other conditions.
            for condition in sorted(expected, key=lambda name: name == "$is"):
                problem = _condition(condition, expected[condition], came, context, where)
                if problem:
                    return problem
            return None
        if not isinstance(came, Mapping):
            return f"{where} is {short(came)}, no object"
        for key, value in expected.items():
            if key not in came:
                # Absent and null are the same to drivers.
                if value is None:
                    continue
                return f"{where} has no {key!r}"
            problem = mismatch(value, came[key], context, f"{path}.{key}" if path else str(key))
            if problem:
                return problem
        return None
    if isinstance(expected, list):
        if not isinstance(came, list):
            return f"{where} is {short(came)}, no list"
        if len(came) != len(expected):
            return f"{where} has {len(came)} items instead of {len(expected)}: {short(came)}"
        for index, (want, have) in enumerate(zip(expected, came, strict=True)):
            problem = mismatch(want, have, context, f"{path}[{index}]")
            if problem:
                return problem
        return None
    return None if equal(expected, came) else f"{where} is {short(came)} instead of {short(expected)}"


def _condition(name: str, argument: Any, came: Any, context: Context, where: str) -> str | None:
    met: bool
    number = came if isinstance(came, (int, float)) and not isinstance(came, bool) else None
    if name == "$any":
        met = came is not None
    elif name == "$above":
        met = number is not None and number > argument
    elif name == "$below":
        met = number is not None and number < argument
    elif name == "$least":
        met = number is not None and number >= argument
    elif name == "$contains":
        if isinstance(came, list):
            met = any(mismatch(argument, item, context) is None for item in came)
        else:
            met = isinstance(came, str) and argument in came
    elif name == "$like":
        met = isinstance(came, str) and re.search(argument, came) is not None
    elif name == "$in":
        met = any(mismatch(item, came, context) is None for item in argument)
    elif name == "$not":
        met = mismatch(argument, came, context) is not None
    elif name == "$length":
        met = isinstance(came, (list, str, dict)) and mismatch(argument, len(came), context) is None
    elif name == "$is":
        met = equal(context.names.setdefault(argument, came), came)
        argument = f"{argument} = {short(context.names[argument])}"
    elif name == "$by_language":
        return mismatch(argument.get(context.language, argument.get("default")), came, context, where)
    elif name == "$unordered":
        met = isinstance(came, list) and len(came) == len(argument) and _pairs(argument, came, context)
    else:
        raise UnknownCondition(f"no condition is named {name!r}")
    return None if met else f"{where} is {short(came)}, which does not meet {name}: {short(argument)}"


def _pairs(expected: list[Any], came: list[Any], context: Context) -> bool:
    """Whether each item matches another expectation; good enough for expectations that exclude each other."""
    left = list(came)
    for want in expected:
        match = next((item for item in left if mismatch(want, item, context) is None), None)
        if match is None:
            return False
        left.remove(match)
    return True


def equal(one: Any, other: Any) -> bool:
    """Deep equality that tells `1` from `true` and from `1.0`, as JSON texts would."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


def substitute(value: Any, context: Context) -> Any:
    """Puts named values in place of texts of the form `$name`."""
    if isinstance(value, Mapping):
        return {key: substitute(item, context) for key, item in value.items()}
    if isinstance(value, list):
        return [substitute(item, context) for item in value]
    if isinstance(value, str) and value.startswith("$") and value[1:] in context.names:
        return context.names[value[1:]]
    return value


def short(value: Any) -> str:
    """A value for people, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:200]}… ({len(text)} characters)"
