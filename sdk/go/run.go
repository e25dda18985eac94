package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	workerv1 "orbit.example/sdk/go/gen/orbit/worker/v1"
	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

// prepare makes what is held of a task, with the context of its handler.
func (w *Worker) prepare(task *workflowv1.Task) *held {
	one := &held{task: task}
	ctx, cancel := context.WithCancelCause(w.base)
	one.cancel = cancel
	if task.ExpireTime != nil && task.DispatchTime != nil {
		// The span and not the instant: this machine's clock may be wrong.
		span := task.ExpireTime.AsTime().Sub(task.DispatchTime.AsTime())
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, span, ErrTaskTimeout)
		one.cancel = func(cause error) { cancel(cause); stop() }
	}
	made := &TaskContext{task: task, draining: w.draining, base: w.log,
		beat: func(progress *workflowv1.Payload) { w.holdings.beat(one, progress) }}
	made.ctx = context.WithValue(ctx, taskKey{}, made)
	one.ctx = made.ctx
	return one
}

// handle runs the handler of a task and hands in its report, whatever happens.
func (w *Worker) handle(one *held) {
	report := &workerv1.Report{TaskToken: one.task.TaskToken}
	// A handler may end its goroutine (runtime.Goexit, as a test's FailNow does), which is neither a return nor a panic.
	var output json.RawMessage
	var err error = &RetryableError{Code: CodePanic, Message: "the handler ended its goroutine"}
	defer func() {
		w.conclude(one, report, outcome(one.ctx, output, err))
		one.cancel(nil)
		w.holdings.finish(one, report)
	}()
	output, err = runHandler(one.ctx, w.handlers[one.task.Contract], one.task)
}

// conclude puts the end of a handler into its report, and says so.
func (w *Worker) conclude(one *held, report *workerv1.Report, ended any) {
	switch kind := ended.(type) {
	case *workerv1.Complete:
		report.Kind = &workerv1.Report_Complete{Complete: kind}
	case *workerv1.Release:
		report.Kind = &workerv1.Report_Release{Release: kind}
		w.logTask(slog.LevelInfo, "orbit: the task was stopped and is given back", one.task, "cause", context.Cause(one.ctx))
	case *workerv1.Fail:
		report.Kind = &workerv1.Report_Fail{Fail: kind}
		fields := []any{"code", kind.Failure.Code, "error", kind.Failure.Message, "retryable", kind.GetRetryable()}
		level := slog.LevelInfo
		if kind.Failure.Code == CodePanic {
			// Other details are the handler's, and perhaps not for logs.
			level, fields = slog.LevelError, append(fields, "details", kind.Failure.Details.GetJson())
		}
		w.logTask(level, "orbit: the attempt failed", one.task, fields...)
	}
}

// runHandler gives a task's input to a handler.
func runHandler(ctx context.Context, handler TaskHandler, task *workflowv1.Task) (json.RawMessage, error) {
	if handler == nil {
		return nil, &RetryableError{Code: "CONTRACT_UNKNOWN", Message: fmt.Sprintf("this worker did not announce %s", task.Contract)}
	}
	text, err := payloadText(task.Input)
	if err != nil {
		return nil, &PermanentError{Code: CodePayloadUnknown, Err: err}
	}
	return handler(ctx, json.RawMessage(text))
}

// outcome makes what is reported of a handler's end: a Complete, a Fail or a Release.
func outcome(ctx context.Context, output json.RawMessage, err error) any {
	if err == nil {
		switch {
		case len(output) > payloadBytesMax:
			err = &PermanentError{Code: CodePayloadTooLarge,
				Message: fmt.Sprintf("the output has %d bytes; at most %d are taken", len(output), payloadBytesMax)}
		case !utf8.Valid(output) || len(output) == 0:
			// A text that protobuf does not take would break the connection for all other tasks, too.
			err = &PermanentError{Code: CodeOutputUnencodable, Message: "the output is no JSON text in UTF-8"}
		default:
			return &workerv1.Complete{Output: textPayload(string(output))}
		}
		return failure(ctx, err)
	}
	var permanent *PermanentError
	var retryable *RetryableError
	said := errors.As(err, &permanent) || errors.As(err, &retryable)
	cause := context.Cause(ctx)
	if !said && (errors.Is(cause, ErrTaskStopped) || errors.Is(cause, ErrWorkerStopped)) {
		return &workerv1.Release{}
	}
	return failure(ctx, err)
}

// stopTask ends the context of a handler whose task the server does not want any more.
func (w *Worker) stopTask(one *held) {
	w.logTask(slog.LevelInfo, "orbit: the task is not wanted any more; stopping it", one.task)
	one.cancel(ErrTaskStopped)
}

// takeOutcome ends the tasks whose reports were answered.
func (w *Worker) takeOutcomes(results []*workerv1.ReportResult) {
	tokens := make([]string, 0, len(results))
	for _, result := range results {
		if result.Error != nil {
			w.refusedReport(result.TaskToken, result.Error)
			continue
		}
		tokens = append(tokens, result.TaskToken)
		if !result.Outcome.GetAccepted() {
			w.logIgnored(result.TaskToken, result.Outcome)
		}
	}
	w.holdings.answered(tokens...)
}

// logIgnored says that a report changed nothing: for those who look closely, since it is nobody's fault.
func (w *Worker) logIgnored(token string, outcome *workerv1.ReportOutcome) {
	w.log.Debug("orbit: a report changed nothing", "task_token", token, "reason", outcome.GetReason().String())
}

// refusedReport: the server could not take a report. It is sent again, or replaced by a failure: nobody else would tell
// the execution.
func (w *Worker) refusedReport(token string, refusal *workerv1.ReportError) {
	if refusal.Retryable {
		w.holdings.again(token, refusal.RetryAfter.AsDuration())
		return
	}
	retryable := false
	fail := &workerv1.Fail{Retryable: &retryable, Failure: &workflowv1.Failure{
		Code: cleanCode(refusal.Reason), Message: cut("the report was refused: "+refusal.Message, failureMessageBytes)}}
	one, replaced := w.holdings.replace(token, &workerv1.Report{TaskToken: token, Kind: &workerv1.Report_Fail{Fail: fail}})
	switch {
	case one == nil:
	case replaced:
		w.logTask(slog.LevelError, "orbit: the report was refused; the attempt fails", one.task,
			"reason", refusal.Reason, "error", refusal.Message)
	default:
		w.logTask(slog.LevelError, "orbit: the failure was refused, too; the server will hand the task out again", one.task,
			"reason", refusal.Reason, "error", refusal.Message)
		w.holdings.drop(token)
	}
}

// logTask writes a line about a task.
func (w *Worker) logTask(level slog.Level, message string, task *workflowv1.Task, more ...any) {
	if w.log.Enabled(context.Background(), level) {
		w.log.Log(context.Background(), level, message, append(taskAttributes(task), more...)...)
	}
}

// taskAttributes are the fields by which a task is known in a log.
func taskAttributes(task *workflowv1.Task) []any {
	return []any{"execution_id", task.ExecutionId, "step", task.Unit, "contract", task.Contract,
		"attempt", task.Attempt, "delivery", task.Delivery}
}

// heardFrom notes that the server answered.
func (w *Worker) heardFrom() { w.lastContact.Store(int64(time.Since(w.started)) + 1) }
