package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	orbit "orbit.example/sdk/go"
)

// classes are the names of situations in the common vocabulary.
var classes = []struct {
	target error
	name   string
}{
	{orbit.ErrNotFound, "NotFound"},
	{orbit.ErrAlreadyExists, "AlreadyExists"},
	{orbit.ErrInvalidArgument, "InvalidArgument"},
	{orbit.ErrFailedPrecondition, "FailedPrecondition"},
	{orbit.ErrAborted, "Aborted"},
	{orbit.ErrUnimplemented, "Unimplemented"},
	{orbit.ErrPermissionDenied, "PermissionDenied"},
	{orbit.ErrUnauthenticated, "Unauthenticated"},
	{orbit.ErrResourceExhausted, "ResourceExhausted"},
	{orbit.ErrUnavailable, "Unavailable"},
	{orbit.ErrDeadlineExceeded, "DeadlineExceeded"},
	{orbit.ErrInternal, "Internal"},
	{context.Canceled, "Cancelled"},
	{orbit.ErrExecutionFailed, "ExecutionFailed"},
	{orbit.ErrExecutionCancelled, "ExecutionCancelled"},
	{orbit.ErrExecutionTimedOut, "ExecutionTimedOut"},
	{orbit.ErrExecutionTerminated, "ExecutionTerminated"},
}

// errorObject describes an error as the protocol has it.
func errorObject(err error) object {
	described := object{"class": class(err), "message": err.Error(), "code": "", "reason": ""}
	if call := (*orbit.Error)(nil); errors.As(err, &call) {
		described["code"], described["reason"], described["metadata"] = code(call), call.Reason, call.Metadata
		violations := []object{}
		for _, violation := range call.Violations {
			violations = append(violations, object{"field": violation.Field, "description": violation.Description})
		}
		described["violations"] = violations
	}
	if ended := (*orbit.ExecutionError)(nil); errors.As(err, &ended) && ended.Failure() != nil {
		failure := ended.Failure()
		var details any
		var detailsText any
		if there, err := failure.Details(&details); err == nil && there {
			detailsText = text(details)
		}
		described["failure"] = object{
			"code": failure.Code, "message": failure.Message, "unit": failure.Unit, "details_json": detailsText,
		}
	}
	return described
}

func class(err error) string {
	// A deadline that passed wraps what came before it, so the outermost error decides.
	if call := (*orbit.Error)(nil); errors.As(err, &call) {
		for _, class := range classes {
			if call.Is(class.target) {
				return class.name
			}
		}
		return "OrbitError"
	}
	for _, class := range classes {
		if errors.Is(err, class.target) {
			return class.name
		}
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
}

// code gives a gRPC code as in NOT_FOUND.
func code(err *orbit.Error) string {
	var name strings.Builder
	for i, letter := range err.Code.String() {
		if i > 0 && letter >= 'A' && letter <= 'Z' {
			name.WriteByte('_')
		}
		name.WriteRune(letter)
	}
	if err.Code.String() == "Canceled" {
		return "CANCELLED"
	}
	return strings.ToUpper(strings.ReplaceAll(name.String(), "O_K", "OK"))
}
