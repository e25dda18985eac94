/** Name and version of this SDK, as workers tell the server and calls name themselves. */

export const SDK_VERSION = "0.1.0";
export const SDK = `orbit-typescript/${SDK_VERSION}`;
