/**
 * Workers and clients for Orbit, a durable workflow service.
 *
 * A worker does tasks (`Worker`, `task`), a caller starts executions and looks after them (`Client`).
 *
 * @packageDocumentation
 */

export { Batches, type BatchAction, type BatchDescription, type BatchFailure, type BatchOptions } from "./batches.js";
export type { CallLimits } from "./call.js";
export {
  Client,
  type ClientOptions,
  type Deployment,
  type DeployOptions,
  type IdReuse,
  type ListOptions,
  type StartOptions,
} from "./client.js";
export { resolveConfig, type Config, type ConnectionOptions } from "./config.js";
export type { Connection } from "./connection.js";
export type { FieldViolation } from "./details.js";
export * from "./errors.js";
export type {
  ExecutionDescription,
  ExecutionEvent,
  ExecutionState,
  ExecutionSummary,
  StepDescription,
} from "./execution.js";
export {
  ExecutionHandle,
  StartedExecution,
  type EventOptions,
  type ReasonOptions,
  type RerunOptions,
  type SignalOptions,
  type WriteOptions,
} from "./handle.js";
export { parseJson, printJson, type Json } from "./json.js";
export { loggerOf, stderrLogger, withFields, type LogFields, type Logger, type LogLevel } from "./logger.js";
export { decodePayload, encodePayload, UnknownPayloadError } from "./payload.js";
export {
  ScheduleHandle,
  Schedules,
  type Overlap,
  type PlannedSlot,
  type PreviewOptions,
  type ScheduleChanges,
  type ScheduleDescription,
  type ScheduleOptions,
  type SchedulePreview,
  type ScheduleTimes,
  type ScheduleWriteOptions,
  type SlotDescription,
} from "./schedules.js";
export { SchemaError, type SchemaIssue, type SchemaResult, type StandardSchema } from "./schema.js";
export {
  task,
  type AnyTask,
  type Handler,
  type Middleware,
  type Task,
  type TaskContext,
  type TaskSchemas,
} from "./task.js";
export { SDK_VERSION } from "./version.js";
export type { Mode, State } from "./worker/link.js";
export { serveHealth, type HealthOptions, type HealthServer } from "./worker/health.js";
export { Worker, type RunOptions, type WorkerOptions, type WorkerStatus } from "./worker/worker.js";
export { workflow, type Workflow, type WorkflowOptions } from "./workflow.js";
