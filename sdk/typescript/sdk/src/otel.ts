/**
 * OpenTelemetry: a span for each task and for each call, joined by `traceparent`. Needs `@opentelemetry/api`.
 *
 * Spans are short: one for each attempt of a task, none for an execution, which may go on for days.
 *
 * @packageDocumentation
 */

import {
  context,
  propagation,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  type Context,
  type Span,
  type Tracer,
} from "@opentelemetry/api";
import { ConnectError, type Interceptor } from "@connectrpc/connect";
import { orbitError, PermanentError, RetryableError } from "./errors.js";
import type { Middleware, TaskContext } from "./task.js";
import { SDK_VERSION } from "./version.js";

/** How spans are made. */
export interface TracingOptions {
  /** Default: the tracer `@orbit/sdk` of the global provider. */
  readonly tracer?: Tracer;
  /**
   * What a task's span is to the call that started its execution: a `child`, so that one trace has the whole execution, or a
   * trace of its own with a `link`, where executions go on for longer than a trace is kept together. Default `child`.
   */
  readonly relation?: "child" | "link";
}

/** Middleware for a worker: a span `task CONTRACT` around each handler, which is the active one while the handler runs. */
export function tracing(options: TracingOptions = {}): Middleware {
  return async (input, task, next) => {
    const tracer = options.tracer ?? trace.getTracer("@orbit/sdk", SDK_VERSION);
    const origin = propagation.extract(ROOT_CONTEXT, { traceparent: task.traceParent });
    const caller = trace.getSpanContext(origin);
    const parent = options.relation === "link" ? ROOT_CONTEXT : origin;
    const span = tracer.startSpan(
      `task ${task.contract}`,
      {
        kind: SpanKind.CONSUMER,
        attributes: attributes(task),
        ...(caller !== undefined && options.relation === "link" && { links: [{ context: caller }] }),
      },
      parent,
    );
    return around(span, trace.setSpan(parent, span), () => next(input));
  };
}

/** Interceptor for a client: a span for each call, and its `traceparent` on the way, which executions pass on to their tasks. */
export function callTracing(options: Pick<TracingOptions, "tracer"> = {}): Interceptor {
  return (next) => async (request) => {
    const tracer = options.tracer ?? trace.getTracer("@orbit/sdk", SDK_VERSION);
    const span = tracer.startSpan(`${request.service.typeName}/${request.method.name}`, {
      kind: SpanKind.CLIENT,
      attributes: { "rpc.system.name": "grpc", "rpc.method": `${request.service.typeName}/${request.method.name}` },
    });
    const active = trace.setSpan(context.active(), span);
    propagation.inject(active, request.header, { set: (header, key, value) => { header.set(key, value); } });
    return around(span, active, () => next(request));
  };
}

/** Runs something under a span and ends the span as it ended. */
async function around<T>(span: Span, active: Context, work: () => Promise<T>): Promise<T> {
  try {
    return await context.with(active, work);
  } catch (error) {
    const code = codeOf(error);
    span.setAttribute("error.type", code);
    span.setStatus({ code: SpanStatusCode.ERROR, message: error instanceof Error ? error.message : code });
    if (error instanceof Error) {
      span.recordException(error);
    }
    throw error;
  } finally {
    span.end();
  }
}

function codeOf(error: unknown): string {
  if (error instanceof PermanentError || error instanceof RetryableError) {
    return error.code;
  }
  if (error instanceof ConnectError) {
    return orbitError(error).code;
  }
  return error instanceof Error ? error.name : "Error";
}

function attributes(task: TaskContext): Record<string, string | number> {
  return {
    "orbit.execution.id": task.executionId,
    "orbit.execution.run": task.run,
    "orbit.workflow": task.workflow,
    "orbit.step": task.step,
    "orbit.queue": task.queue,
    "orbit.task.contract": task.contract,
    "orbit.task.attempt": task.attempt,
    "orbit.task.delivery": task.delivery,
  };
}
