"""Payloads as Python values: JSON text on the wire, integers of any length exact."""

import json
from typing import Any

from orbit_api.workflow.v1.payload_pb2 import Payload


class UnknownPayload(Exception):
    """A payload whose content this worker cannot read: none was set, or one of a kind newer than these stubs."""


def decode(payload: Payload) -> Any:
    """Gives the JSON value of a payload; raises `UnknownPayload` where there is none that can be read.

    Integers keep every digit; other numbers become floats.
    """
    # Answers of the server always use `json`. Anything else must be refused: a handler that ran with a made-up
    # input would do the wrong work.
    if payload.WhichOneof("content") != "json":
        raise UnknownPayload(f"no content that this worker can read (its kind: {payload.WhichOneof('content')})")
    return json.loads(payload.json)


def encode(value: Any) -> Payload:
    """Makes a payload of a JSON value. Raises `TypeError` or `ValueError` for what JSON cannot say, such as NaN."""
    return Payload(json=json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
