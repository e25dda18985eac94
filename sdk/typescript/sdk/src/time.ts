/** Times and durations of the protocol as milliseconds and `Date`. */

import {
  durationFromMs,
  durationMs,
  timestampDate,
  timestampFromDate,
  type Duration,
  type Timestamp,
} from "@bufbuild/protobuf/wkt";

/** A duration in milliseconds, rounded to whole ones. */
export function durationOf(milliseconds: number): Duration {
  return durationFromMs(Math.round(milliseconds));
}

/** Milliseconds of a duration; 0 if it is absent. */
export function millisecondsOf(duration: Duration | undefined): number {
  return duration === undefined ? 0 : durationMs(duration);
}

/** A time, or `undefined` if it is absent. */
export function dateOf(time: Timestamp | undefined): Date | undefined {
  return time === undefined ? undefined : timestampDate(time);
}

export { timestampFromDate };
