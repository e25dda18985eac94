"""Payloads as Python values: exact JSON text on the wire, integers of any length kept to the last digit."""

import json
import re
from functools import lru_cache
from typing import Any

from google.protobuf.json_format import MessageToDict
from orbit_api.workflow.v1.payload_pb2 import Payload

from orbit.codec import Reader, reader, to_json
from orbit.errors import PayloadError, PermanentError

# Largest payload that the server takes, in bytes of JSON text.
PAYLOAD_BYTES_MAX = 2 * 1024 * 1024

# A null character, escaped as JSON has it: an even number of backslashes before it are characters of their own.
_NULL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
# Half of a pair that stands for one character: in no encoding, and refused by the server.
_SURROGATE = re.compile("[\ud800-\udfff]")


def decode(payload: Payload) -> Any:
    """Gives the JSON value of a payload; raises `PayloadError` where there is none that can be read.

    Integers keep every digit; other numbers become floats.
    """
    kind = payload.WhichOneof("content")
    if kind == "json":
        return loads(payload.json)
    if kind == "value":
        return _integers(MessageToDict(payload.value))
    # An absent content is not an empty one: a handler that ran with a made-up input would do the wrong work.
    raise PayloadError("the payload has no content that this SDK can read")


def read(payload: Payload, hint: Any) -> Any:
    """The value of a payload as a type; None takes JSON as it is. Raises `PayloadError` if it does not fit."""
    if hint is None:
        return decode(payload)
    text = payload.json if payload.WhichOneof("content") == "json" else dumps(decode(payload))
    return _reader(hint)(text)


def loads(text: str) -> Any:
    """The value of a JSON text; raises `PayloadError` for what is none."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise PayloadError(f"the payload is no JSON: {error}") from error


def encode(value: Any) -> Payload:
    """Makes a payload of a value: JSON itself, dataclasses, models, dates, enums and the like.

    Raises `TypeError` or `ValueError` for what JSON cannot say, such as NaN, and for null characters.
    """
    return Payload(json=dumps(value))


def dumps(value: Any) -> str:
    """The JSON text of a value, as `encode` sends it."""
    if value is None:
        return "null"
    text = _ENCODER.encode(value)
    if not text.isascii() and _SURROGATE.search(text):
        raise ValueError("a string has half of a surrogate pair, which is no text")
    if "\\u0000" in text and _NULL.search(text):
        raise ValueError("a string has a null character, which no store keeps")
    return text


def dumps_output(value: Any) -> str:
    """The JSON text of what a handler gives back. Raises `PermanentError`: `OUTPUT_UNENCODABLE` for what JSON cannot
    say, `PAYLOAD_TOO_LARGE` for more than the server takes."""
    try:
        text = dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise PermanentError(f"the output cannot be sent: {error}", code="OUTPUT_UNENCODABLE") from error
    # A character has up to four bytes; only what may be too large is counted.
    if 4 * len(text) > PAYLOAD_BYTES_MAX and (size := len(text.encode())) > PAYLOAD_BYTES_MAX:
        message = f"the output has {size:,} bytes, the server takes {PAYLOAD_BYTES_MAX:,}"
        raise PermanentError(message, code="PAYLOAD_TOO_LARGE")
    return text


# Made once: `json.dumps` with arguments makes one for each call.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=to_json)


def _integers(value: Any) -> Any:
    """Whole numbers as integers: a structured value has doubles only, and the server refuses what they cannot hold."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_integers(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _integers(entry) for key, entry in value.items()}
    return value


@lru_cache(maxsize=256)
def _reader(hint: Any) -> Reader:
    return reader(hint)
