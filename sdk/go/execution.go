package orbit

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

// ExecutionState is where an execution is in its life. Bear values that you do not know: they are open states.
type ExecutionState string

// The states of executions.
const (
	// StateRunning: its steps go on.
	StateRunning ExecutionState = "RUNNING"
	// StatePaused: it is held, nothing new begins.
	StatePaused ExecutionState = "PAUSED"
	// StateWindingDown: it failed, was cancelled or timed out; what was done is undone, its handler runs.
	StateWindingDown ExecutionState = "WINDING_DOWN"
	// StateSucceeded: it has ended with an output.
	StateSucceeded ExecutionState = "SUCCEEDED"
	// StateFailed: it has ended with a failure.
	StateFailed ExecutionState = "FAILED"
	// StateCancelled: somebody cancelled it, and it has ended.
	StateCancelled ExecutionState = "CANCELLED"
	// StateTimedOut: its own timeout ended it.
	StateTimedOut ExecutionState = "TIMED_OUT"
	// StateTerminated: somebody ended it at once.
	StateTerminated ExecutionState = "TERMINATED"
)

// IsClosed tells whether the execution has ended.
func (s ExecutionState) IsClosed() bool {
	switch s {
	case StateSucceeded, StateFailed, StateCancelled, StateTimedOut, StateTerminated:
		return true
	case StateRunning, StatePaused, StateWindingDown:
	}
	return false
}

// An Execution is what the server tells about one. From a list it has neither payloads, failure nor steps.
type Execution struct {
	// ID is the caller's, or the server's if the caller gave none.
	ID string
	// UID is always the server's, and never used again.
	UID string
	// Run is the number of the present run, from 1: continue_as_new begins the next.
	Run int
	// Workflow and Version name its definition.
	Workflow, Version string
	// State is where it is in its life.
	State ExecutionState
	// Labels of the definition and of the start.
	Labels map[string]string
	// Reason that a cancel, a terminate or, while PAUSED, the pause gave.
	Reason string
	// StartTime is when it was started, CloseTime when it was closed and ExpireTime when its own timeout passes; zero where
	// there is no such time.
	StartTime, CloseTime, ExpireTime time.Time
	// Failure is why it failed; nil if it did not.
	Failure *Failure
	// Steps in the definition's order, then what undoes steps and handlers that have begun.
	Steps []Step
	// LastEvent is the number of the newest event; 0 in lists.
	LastEvent int64

	message *workflowv1.Execution
}

// Input reads the input into a value; it leaves the value alone where there is none, as in lists.
func (e *Execution) Input(into any) error { return decodePayload(e.message.GetInput(), into) }

// Output reads the output into a value; it leaves the value alone where there is none.
func (e *Execution) Output(into any) error { return decodePayload(e.message.GetOutput(), into) }

// Proto gives the message as it came from the server, for what has no field here.
func (e *Execution) Proto() *workflowv1.Execution { return e.message }

// A Step is how one step of an execution stands.
type Step struct {
	// ID as the definition has it; compensate:ID undoes a step, failure:ID is of a handler.
	ID string
	// State, for example PENDING, SCHEDULED, RUNNING, SUCCEEDED or FAILED. Bear values that you do not know.
	State string
	// Attempt and Delivery count from 1; 0 before the first.
	Attempt, Delivery int
	// WorkerID is who has or had the newest delivery.
	WorkerID string
	// Failure is why the newest attempt, or the step, failed; nil if it did not.
	Failure *Failure
	// WakeTime is when it goes on by itself: the end of a pause, a sleep or a wait. Zero without one.
	WakeTime time.Time

	message *workflowv1.StepStatus
}

// Output reads the step's output into a value; it leaves the value alone where there is none.
func (s *Step) Output(into any) error { return decodePayload(s.message.GetOutput(), into) }

// Progress reads the newest progress that a worker reported into a value; it leaves the value alone where there is none.
func (s *Step) Progress(into any) error { return decodePayload(s.message.GetProgress(), into) }

// Proto gives the message as it came from the server, for what has no field here.
func (s *Step) Proto() *workflowv1.StepStatus { return s.message }

// A Failure is why a step, an attempt or an execution failed.
type Failure struct {
	// Code for programs: the worker's own, the definition's, or one of the server's.
	Code string
	// Message for people.
	Message string
	// Unit that failed; empty where the failure is of no unit.
	Unit string

	details *workflowv1.Payload
}

// Details reads the details into a value and tells whether there were any.
func (f *Failure) Details(into any) (bool, error) {
	if f.details == nil {
		return false, nil
	}
	return true, decodePayload(f.details, into)
}

// How an execution ended that did not succeed, for [errors.Is].
var (
	// ErrExecutionFailed: it failed; the [ExecutionError] has the failure.
	ErrExecutionFailed = errors.New("orbit: the execution failed")
	// ErrExecutionCancelled: somebody cancelled it.
	ErrExecutionCancelled = errors.New("orbit: the execution was cancelled")
	// ErrExecutionTimedOut: its own timeout passed.
	ErrExecutionTimedOut = errors.New("orbit: the execution timed out")
	// ErrExecutionTerminated: somebody terminated it.
	ErrExecutionTerminated = errors.New("orbit: the execution was terminated")
)

// An ExecutionError is the result of an execution that is closed and did not succeed; find it with [errors.As].
type ExecutionError struct {
	// Execution as it ended.
	Execution *Execution
}

// Error tells how it ended, and why.
func (e *ExecutionError) Error() string {
	text := fmt.Sprintf("orbit: execution %s ended %s", e.Execution.ID, e.Execution.State)
	switch {
	case e.Execution.Failure != nil:
		text += ": " + describe(e.Execution.Failure.Code, e.Execution.Failure.Message, nil)
	case e.Execution.Reason != "":
		text += ": " + e.Execution.Reason
	}
	return text
}

// Unwrap gives [ErrExecutionFailed] or one of its siblings.
func (e *ExecutionError) Unwrap() error {
	switch e.Execution.State {
	case StateFailed:
		return ErrExecutionFailed
	case StateCancelled:
		return ErrExecutionCancelled
	case StateTimedOut:
		return ErrExecutionTimedOut
	case StateTerminated:
		return ErrExecutionTerminated
	case StateRunning, StatePaused, StateWindingDown, StateSucceeded:
	}
	return nil
}

// Failure is why it failed; nil if it was cancelled, terminated or timed out.
func (e *ExecutionError) Failure() *Failure { return e.Execution.Failure }

func newExecution(message *workflowv1.Execution) *Execution {
	e := &Execution{
		ID: message.GetId(), UID: message.GetUid(), Run: int(message.GetRun()), Workflow: message.GetWorkflow(),
		Version: message.GetVersion(), State: ExecutionState(shortName(message.GetState().String())),
		Labels: message.GetLabels(), Reason: message.GetReason(), StartTime: timeOf(message.GetStartTime()),
		CloseTime: timeOf(message.GetCloseTime()), ExpireTime: timeOf(message.GetExpireTime()),
		Failure: newFailure(message.GetFailure()), LastEvent: message.GetLastEventNumber(), message: message,
	}
	for _, step := range message.GetSteps() {
		e.Steps = append(e.Steps, Step{
			ID: step.Step, State: shortName(step.State.String()), Attempt: int(step.Attempt), Delivery: int(step.Delivery),
			WorkerID: step.WorkerId, Failure: newFailure(step.Failure), WakeTime: timeOf(step.WakeTime), message: step,
		})
	}
	return e
}

func newFailure(message *workflowv1.Failure) *Failure {
	if message == nil {
		return nil
	}
	return &Failure{Code: message.Code, Message: message.Message, Unit: message.Unit, details: message.Details}
}

// shortName gives the name of a state without its prefix.
func shortName(name string) string { return strings.TrimPrefix(name, "STATE_") }

// timeOf gives a time; zero where there is none.
func timeOf(message *timestamppb.Timestamp) time.Time {
	if message == nil {
		return time.Time{}
	}
	return message.AsTime()
}
