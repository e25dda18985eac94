import assert from "node:assert/strict";
import { test } from "node:test";
import { parseJson, printJson } from "@orbit/sdk";

test("an integer beyond 2^53 is read as a bigint, with every digit", () => {
  assert.equal(parseJson("9007199254740993"), 9007199254740993n);
  assert.equal(parseJson("-9007199254740993"), -9007199254740993n);
  assert.deepEqual(parseJson('{"a":[123456789012345678901234567890,1]}'), { a: [123456789012345678901234567890n, 1] });
});

test("an integer up to 2^53 - 1 is a number, however it is written", () => {
  assert.equal(parseJson("9007199254740991"), 9007199254740991);
  assert.equal(parseJson("-9007199254740991"), -9007199254740991);
  assert.equal(parseJson("1"), 1);
});

test("fractions and exponents stay numbers, however long they are", () => {
  for (const text of ["0.12345678901234567890", "12345678901234567890.5", "12345678901234567890e2", "1e20", "1.5E+0000000000000000001"]) {
    assert.equal(parseJson(text), Number(text), text);
  }
});

test("digits within a string are no number", () => {
  const text = '{"id":"12345678901234567890","q":"a\\"12345678901234567890\\"","n":12345678901234567890}';
  assert.deepEqual(parseJson(text), { id: "12345678901234567890", q: 'a"12345678901234567890"', n: 12345678901234567890n });
  assert.equal(printJson(parseJson(text)), text);
});

test("a text that is not JSON is refused, also where large integers stand", () => {
  for (const text of ["{12345678901234567890:1}", "[12345678901234567890", "0012345678901234567890", "-", ""]) {
    assert.throws(() => parseJson(text), SyntaxError, text);
  }
});

test("bigints are printed as integers, wherever they stand", () => {
  assert.equal(printJson(9007199254740993n), "9007199254740993");
  assert.equal(printJson({ a: [-9007199254740993n, 1n], b: "9007199254740993" }), '{"a":[-9007199254740993,1],"b":"9007199254740993"}');
});

test("nothing is null, and what JSON cannot say is refused", () => {
  assert.equal(printJson(undefined), "null");
  assert.equal(printJson(null), "null");
  const circle: { self?: unknown } = {};
  circle.self = circle;
  for (const value of [NaN, { a: [Infinity] }, { a: -Infinity, b: 1n }, () => 1, Symbol("s"), circle]) {
    assert.throws(() => printJson(value), TypeError);
  }
});

test("unicode and control characters come back as they were", () => {
  for (const text of ["", "žluťoučký kůň", "𝒪rbit 🚀", '"\\\n\t', "\u2028"]) {
    assert.equal(parseJson(printJson(text)), text);
  }
});

test("a property named __proto__ stays a property", () => {
  const value = parseJson('{"__proto__":{"n":12345678901234567890}}');
  assert.equal(printJson(value), '{"__proto__":{"n":12345678901234567890}}');
});

test("a program that teaches bigint to print itself changes nothing", () => {
  const prototype = BigInt.prototype as { toJSON?: () => string };
  prototype.toJSON = function (this: bigint) {
    return this.toString();
  };
  try {
    assert.equal(printJson({ n: 9007199254740993n }), '{"n":9007199254740993}');
  } finally {
    delete prototype.toJSON;
  }
});
