package orbit

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	workerv1 "orbit.example/sdk/go/gen/orbit/worker/v1"
	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

// Codes that the SDK itself gives to failed attempts.
const (
	// CodeFailed is the code of an error that has none of its own.
	CodeFailed = "FAILED"
	// CodePanic: the handler panicked. Retryable; the details have the stack.
	CodePanic = "PANIC"
	// CodeTimeout: the handler ended because the task's timeout passed. Retryable.
	CodeTimeout = "TIMEOUT"
	// CodeInputInvalid: the input does not fit the handler's type. Permanent.
	CodeInputInvalid = "INPUT_INVALID"
	// CodeOutputUnencodable: JSON cannot say what the handler returned. Permanent.
	CodeOutputUnencodable = "OUTPUT_UNENCODABLE"
	// CodePayloadUnknown: the input has a kind of content that this SDK does not know. Permanent.
	CodePayloadUnknown = "PAYLOAD_UNKNOWN"
	// CodePayloadTooLarge: the output is larger than the server takes. Permanent.
	CodePayloadTooLarge = "PAYLOAD_TOO_LARGE"
)

const (
	// codeLengthMax and messageBytesMax are what the server takes; it would refuse a longer code, and cut the text.
	codeLengthMax       = 63
	failureMessageBytes = 16 << 10
	stackBytes          = 16 << 10
)

// PermanentError fails its task's step: another attempt would fail in the same way, so none is made. Handlers return it,
// also wrapped.
type PermanentError struct {
	// Code for programs, at most 63 of A-Z a-z 0-9 _ . -; others are replaced. Default: [CodeFailed].
	Code string
	// Message for people. Default: that of Err.
	Message string
	// Details for programs, anything that JSON can say. Default: none.
	Details any
	// Err is the cause, if there is one.
	Err error
}

// Permanent makes a [PermanentError] of a code and a cause.
func Permanent(code string, cause error) *PermanentError {
	return &PermanentError{Code: code, Err: cause}
}

// Error gives the code and the message, or the cause's.
func (e *PermanentError) Error() string { return describe(e.Code, e.Message, e.Err) }

// Unwrap gives the cause.
func (e *PermanentError) Unwrap() error { return e.Err }

// RetryableError fails its task's attempt; the next one follows as the step's retry policy says. Any other error of a
// handler does the same, with [CodeFailed] as its code.
type RetryableError struct {
	// Code for programs, at most 63 of A-Z a-z 0-9 _ . -; others are replaced. The policy's non_retryable names codes.
	// Default: [CodeFailed].
	Code string
	// Message for people. Default: that of Err.
	Message string
	// Details for programs, anything that JSON can say. Default: none.
	Details any
	// RetryAfter is the shortest pause before the next attempt; the policy's counts if it is longer.
	RetryAfter time.Duration
	// Err is the cause, if there is one.
	Err error
}

// Retryable makes a [RetryableError] of a code and a cause.
func Retryable(code string, cause error) *RetryableError {
	return &RetryableError{Code: code, Err: cause}
}

// Error gives the code and the message, or the cause's.
func (e *RetryableError) Error() string { return describe(e.Code, e.Message, e.Err) }

// Unwrap gives the cause.
func (e *RetryableError) Unwrap() error { return e.Err }

func describe(code, message string, cause error) string {
	if message == "" && cause != nil {
		message = cause.Error()
	}
	switch {
	case code == "":
		return message
	case message == "":
		return code
	}
	return code + ": " + message
}

// panicked makes the error of a handler that panicked. Called in the function that recovers.
func panicked(value any) *RetryableError {
	stack := string(debug.Stack())
	// What matters stands behind the frames of the recovery itself.
	if _, after, ok := strings.Cut(stack, "panic("); ok {
		stack = "panic(" + after
	}
	cause, _ := value.(error)
	return &RetryableError{Code: CodePanic, Message: fmt.Sprint(value), Err: cause,
		Details: map[string]string{"stack": cut(stack, stackBytes)}}
}

// failure makes the report of an attempt that failed with err, and tells whether it may be repeated.
func failure(ctx context.Context, err error) *workerv1.Fail {
	var permanent *PermanentError
	var retryable *RetryableError
	fail := &workerv1.Fail{Failure: &workflowv1.Failure{Code: CodeFailed}, Retryable: proto.Bool(true)}
	message, details := "", any(nil)
	switch {
	case errors.As(err, &permanent):
		fail.Retryable = proto.Bool(false)
		fail.Failure.Code, message, details = permanent.Code, permanent.Message, permanent.Details
	case errors.As(err, &retryable):
		fail.Failure.Code, message, details = retryable.Code, retryable.Message, retryable.Details
		if retryable.RetryAfter > 0 {
			fail.RetryAfter = durationpb.New(retryable.RetryAfter)
		}
	case errors.Is(context.Cause(ctx), ErrTaskTimeout):
		fail.Failure.Code = CodeTimeout
	}
	if message == "" {
		message = messageOf(err, permanent, retryable)
	}
	fail.Failure.Code = cleanCode(fail.Failure.Code)
	if details != nil {
		payload, err := encodePayload(details)
		switch {
		case err != nil:
			message += fmt.Sprintf(" (its details have no JSON form: %v)", err)
		case len(payload.GetJson()) > payloadBytesMax/2:
			message += fmt.Sprintf(" (its details of %d bytes are too large to report)", len(payload.GetJson()))
		default:
			fail.Failure.Details = payload
		}
	}
	fail.Failure.Message = cut(message, failureMessageBytes)
	return fail
}

// messageOf gives the text of an error: of one of ours that says nothing itself, the cause's, without the code.
func messageOf(err error, permanent *PermanentError, retryable *RetryableError) string {
	cause := err
	if permanent != nil {
		cause = permanent.Err
	} else if retryable != nil {
		cause = retryable.Err
	}
	if cause == nil {
		return ""
	}
	return cause.Error()
}

// cleanCode makes a code that the server takes.
func cleanCode(code string) string {
	if code == "" {
		return CodeFailed
	}
	clean := strings.Map(func(letter rune) rune {
		switch {
		case letter >= 'a' && letter <= 'z', letter >= 'A' && letter <= 'Z', letter >= '0' && letter <= '9',
			letter == '_', letter == '.', letter == '-':
			return letter
		}
		return '_'
	}, code)
	return clean[:min(len(clean), codeLengthMax)]
}

// cut shortens a text to so many bytes, at the border of a character, and makes it valid UTF-8: protobuf takes no other.
func cut(text string, bytes int) string {
	if len(text) > bytes {
		text = text[:bytes]
	}
	return strings.ToValidUTF8(text, "�")
}
