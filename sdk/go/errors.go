package orbit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is what a call that failed returns; find it with [errors.As]. To tell the situations apart use [errors.Is] with
// [ErrNotFound] and its siblings, and Reason for the details.
type Error struct {
	// Code of gRPC.
	Code codes.Code
	// Reason is the server's ErrorReason without its prefix, as in EXECUTION_NOT_FOUND; workflowv1.ErrorReason describes
	// all of them. Empty if the error is not the server's. Bear values that you do not know.
	Reason string
	// Message for people.
	Message string
	// Metadata has what the message says, for programs; which keys there are depends on the reason.
	Metadata map[string]string
	// Violations are all bad fields of the request, with InvalidArgument.
	Violations []Violation
	// RetryAfter is the pause that the server asks for before the same call; 0 if it asks for none.
	RetryAfter time.Duration

	cause error
}

// Violation is one bad field of a request.
type Violation struct {
	// Field is its path, as in input.items[2].cents.
	Field string
	// Description says what is wrong with it.
	Description string
}

// The situations in which a call fails, for [errors.Is].
var (
	// ErrNotFound: there is no such execution, definition, batch or schedule.
	ErrNotFound error = situation(codes.NotFound)
	// ErrAlreadyExists: the id or version is taken by something else.
	ErrAlreadyExists error = situation(codes.AlreadyExists)
	// ErrInvalidArgument: the request is wrong; the violations say where.
	ErrInvalidArgument error = situation(codes.InvalidArgument)
	// ErrFailedPrecondition: not in this state, for example because the execution is closed.
	ErrFailedPrecondition error = situation(codes.FailedPrecondition)
	// ErrAborted: somebody else was first, for example since an etag was read. Read again, and decide again.
	ErrAborted error = situation(codes.Aborted)
	// ErrPermissionDenied: the credentials do not allow it.
	ErrPermissionDenied error = situation(codes.PermissionDenied)
	// ErrUnauthenticated: credentials are missing or wrong.
	ErrUnauthenticated error = situation(codes.Unauthenticated)
	// ErrResourceExhausted: a limit is reached; wait.
	ErrResourceExhausted error = situation(codes.ResourceExhausted)
	// ErrUnavailable: the server or its database cannot be reached.
	ErrUnavailable error = situation(codes.Unavailable)
	// ErrDeadlineExceeded: the time for the call ran out, retries included. A write may have happened; the same request
	// id tells. The error also is [context.DeadlineExceeded].
	ErrDeadlineExceeded error = situation(codes.DeadlineExceeded)
	// ErrUnimplemented: the server does not know this call; it is older than the SDK.
	ErrUnimplemented error = situation(codes.Unimplemented)
	// ErrInternal: a fault of the server's; its log has it.
	ErrInternal error = situation(codes.Internal)
)

// situation is the target of errors.Is for one code.
type situation codes.Code

func (s situation) Error() string { return "orbit: " + codeName(codes.Code(s)) }

// Error gives the message with the reason.
func (e *Error) Error() string {
	name := e.Reason
	if name == "" {
		name = codeName(e.Code)
	}
	return fmt.Sprintf("orbit: %s (%s)", e.Message, name)
}

// Is tells whether target is the error's situation, or the context error that means the same.
func (e *Error) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded:
		return e.Code == codes.DeadlineExceeded
	case context.Canceled:
		return e.Code == codes.Canceled
	}
	code, ok := target.(situation)
	return ok && codes.Code(code) == e.Code
}

// Unwrap gives the error before this one: what gRPC said, or the last failure before the time ran out.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus gives the error as gRPC has it, for code that passes it on.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message) }

// ErrorFrom makes an [Error] of what a raw stub returned; nil of nil. Errors that are not gRPC's have the code Unknown.
func ErrorFrom(err error) *Error {
	if err == nil {
		return nil
	}
	if already := (*Error)(nil); errors.As(err, &already) {
		return already
	}
	// The stubs wrap nothing, but a context may end before gRPC sees the call.
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	e := &Error{Code: st.Code(), Message: st.Message(), cause: err}
	for _, detail := range st.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			e.Reason, e.Metadata = detail.Reason, detail.Metadata
		case *errdetails.BadRequest:
			for _, violation := range detail.FieldViolations {
				e.Violations = append(e.Violations, Violation{violation.Field, violation.Description})
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = detail.RetryDelay.AsDuration()
		}
	}
	return e
}

// codeOf gives the code of what a stub returned; OK of nil.
func codeOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	return ErrorFrom(err).Code
}

// gaveUp is the error of a call whose time ran out while last was the newest failure.
func gaveUp(last *Error) *Error {
	return &Error{Code: codes.DeadlineExceeded, Reason: last.Reason, Metadata: last.Metadata, cause: last,
		Message: "the time for the call ran out; last: " + last.Message}
}

// invalid is the error of a call that was wrong before it was made.
func invalid(field, description string) *Error {
	return &Error{Code: codes.InvalidArgument, Message: field + " " + description,
		Violations: []Violation{{field, description}}}
}

// codeName gives a code as the protocol writes it, as in NOT_FOUND.
func codeName(code codes.Code) string {
	if code == codes.Canceled {
		return "CANCELLED"
	}
	name := code.String()
	var out strings.Builder
	for i, letter := range name {
		if i > 0 && letter >= 'A' && letter <= 'Z' && name[i-1] >= 'a' && name[i-1] <= 'z' {
			out.WriteByte('_')
		}
		out.WriteRune(letter)
	}
	return strings.ToUpper(out.String())
}
