/** Payloads as values: exact JSON text on the wire. */

import { create, toJson } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import { PayloadSchema, type Payload } from "@orbit/api/orbit/workflow/v1/payload_pb.js";
import { parseJson, printJson } from "./json.js";

/** A payload without a content that this SDK can read: none was set, or one of a newer kind. */
export class UnknownPayloadError extends Error {
  override readonly name = "UnknownPayloadError";
}

/**
 * Gives the value of a payload.
 *
 * @throws UnknownPayloadError where there is none that can be read. Whoever went on with a made-up value would do the
 * wrong work.
 */
export function decodePayload(payload: Payload | undefined): unknown {
  const content = payload?.content;
  switch (content?.case) {
    case "json":
      return parseJson(content.value);
    case "value":
      return toJson(ValueSchema, content.value);
    case "reference":
    case undefined:
      throw new UnknownPayloadError(`a payload has no content that this SDK can read (${content?.case ?? "none is set"})`);
  }
}

/** The same, and `undefined` where there is no payload at all. */
export function decodeOptional(payload: Payload | undefined): unknown {
  return payload === undefined ? undefined : decodePayload(payload);
}

/**
 * Makes a payload of a value; `undefined` is JSON `null`.
 *
 * @throws TypeError for what JSON cannot say.
 */
export function encodePayload(value: unknown): Payload {
  return payloadOfText(printJson(value));
}

/** Makes a payload of JSON text, which is sent as it is. */
export function payloadOfText(json: string): Payload {
  return create(PayloadSchema, { content: { case: "json", value: json } });
}
