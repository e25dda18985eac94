package orbit

import (
	"context"
	"fmt"
	"maps"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	adminv1 "orbit.example/sdk/go/gen/orbit/admin/v1"
)

// IDReuse says what a start may do if another execution has its id.
type IDReuse int

const (
	// IDReuseReject does nothing to the other one: the same workflow with the same input is found, anything else is refused
	// with [ErrAlreadyExists]. The default.
	IDReuseReject IDReuse = iota
	// IDReuseAllowWhenClosed takes the place of a closed one.
	IDReuseAllowWhenClosed
	// IDReuseTerminateRunning takes its place, and terminates it if it is open.
	IDReuseTerminateRunning
)

// A StartOption says more about a start.
type StartOption interface {
	applyStart(*adminv1.StartExecutionRequest) error
}

type startOption func(*adminv1.StartExecutionRequest) error

func (o startOption) applyStart(request *adminv1.StartExecutionRequest) error { return o(request) }

// A CallOption says more about a write; it is a StartOption, too.
type CallOption interface {
	StartOption
	requestID() string
}

type requestIDOption string

func (o requestIDOption) requestID() string { return string(o) }

func (o requestIDOption) applyStart(request *adminv1.StartExecutionRequest) error {
	request.RequestId = string(o)
	return nil
}

// WithRequestID names a write, 1 to 64 characters: for 24 hours the same call with the same name gets the first answer and
// does nothing more, also from another process. Default: a new name for each call, the same for its retries.
func WithRequestID(id string) CallOption { return requestIDOption(id) }

// requestIDOf gives the request id of a call: the caller's, or a new one.
func requestIDOf(options []CallOption) string {
	for i := len(options) - 1; i >= 0; i-- {
		if id := options[i].requestID(); id != "" {
			return id
		}
	}
	return newID()
}

// WithID chooses the execution's id: 1 to 128 of A-Z a-z 0-9 . _ : @ + ~ -, the first alphanumeric. Default: the server
// makes one.
func WithID(id string) StartOption {
	return startOption(func(r *adminv1.StartExecutionRequest) error { r.Id = id; return nil })
}

// WithVersion chooses the version of the definition. Default: the highest, a pre-release only if it is asked for.
func WithVersion(version string) StartOption {
	return startOption(func(r *adminv1.StartExecutionRequest) error { r.Version = version; return nil })
}

// WithLabels adds labels to those of the definition; these win.
func WithLabels(labels map[string]string) StartOption {
	return startOption(func(r *adminv1.StartExecutionRequest) error {
		if r.Labels == nil {
			r.Labels = map[string]string{}
		}
		maps.Copy(r.Labels, labels)
		return nil
	})
}

// WithStartDelay lets the first step begin later.
func WithStartDelay(delay time.Duration) StartOption {
	return startOption(func(r *adminv1.StartExecutionRequest) error { r.StartDelay = durationpb.New(delay); return nil })
}

// WithIDReuse says what may be done if another execution has the id. Default: [IDReuseReject].
func WithIDReuse(policy IDReuse) StartOption {
	return startOption(func(r *adminv1.StartExecutionRequest) error {
		switch policy {
		case IDReuseReject:
			r.IdReusePolicy = adminv1.IdReusePolicy_ID_REUSE_POLICY_REJECT
		case IDReuseAllowWhenClosed:
			r.IdReusePolicy = adminv1.IdReusePolicy_ID_REUSE_POLICY_ALLOW_WHEN_CLOSED
		case IDReuseTerminateRunning:
			r.IdReusePolicy = adminv1.IdReusePolicy_ID_REUSE_POLICY_TERMINATE_RUNNING
		default:
			return invalid("id_reuse_policy", fmt.Sprintf("%d is none that there is", policy))
		}
		return nil
	})
}

// WithSignal gives the execution a signal with its start, in one commit; an open execution of the same workflow that has
// the id gets it instead.
func WithSignal(name string, payload any) StartOption {
	return startOption(func(r *adminv1.StartExecutionRequest) error {
		encoded, err := encodePayload(payload)
		if err != nil {
			return invalid("signal.payload", "has no JSON form: "+err.Error())
		}
		r.Signal = &adminv1.StartSignal{Name: name, Payload: encoded}
		return nil
	})
}

// Start starts an execution of a workflow and returns once the server keeps it for good. The input is anything that
// encoding/json can write; nil is JSON null.
//
// The same id, workflow and input again find the existing execution, with [ExecutionHandle.Created] false; another one
// that has the id is [ErrAlreadyExists].
func (c *Client) Start(ctx context.Context, workflow string, input any, options ...StartOption) (*ExecutionHandle, error) {
	request := &adminv1.StartExecutionRequest{Workflow: workflow}
	var err error
	if request.Input, err = encodePayload(input); err != nil {
		return nil, invalid("input", "has no JSON form: "+err.Error())
	}
	for _, option := range options {
		if err := option.applyStart(request); err != nil {
			return nil, err
		}
	}
	if request.RequestId == "" {
		request.RequestId = newID()
	}
	response, err := invoke(ctx, c, request, c.admin.StartExecution)
	if err != nil {
		return nil, err
	}
	return &ExecutionHandle{
		client: c, id: response.Id, uid: response.Uid, version: response.Version, created: response.Created,
	}, nil
}
