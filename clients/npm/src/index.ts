// The client of the HTTP API of execbroker serve, for browsers and Node.js.

export * from "./api.js";
export { Client, Conversation, Files, Session } from "./client.js";
export type { CallOptions, ClientOptions } from "./client.js";
export { ExecbrokerError } from "./errors.js";
export { bytesOf, packed, textOf } from "./bytes.js";
export { Run } from "./stream.js";
export type { RunEvent } from "./stream.js";
