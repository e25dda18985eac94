package main

import (
	"context"
	"time"

	orbit "orbit.example/sdk/go"
)

// theClient gives the process's client, made from the environment with the first command that needs it.
func (d *driver) theClient() (*orbit.Client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client == nil {
		client, err := orbit.NewClient(orbit.WithLogger(d.logger()))
		if err != nil {
			return nil, err
		}
		d.client = client
	}
	return d.client, nil
}

func (d *driver) connect(_ context.Context, c command) (object, error) {
	args := read[struct {
		Address string `json:"address"`
		APIKey  string `json:"api_key"`
		Profile string `json:"profile"`
		TLSCA   string `json:"tls_ca"`
	}](c)
	options := []orbit.ClientOption{orbit.WithLogger(d.logger())}
	if args.Address != "" {
		options = append(options, orbit.WithAddress(args.Address))
	}
	if args.APIKey != "" {
		options = append(options, orbit.WithAPIKey(args.APIKey))
	}
	if args.Profile != "" {
		options = append(options, orbit.WithProfile(args.Profile))
	}
	if args.TLSCA != "" {
		options = append(options, orbit.WithTLSCA(args.TLSCA))
	}
	client, err := orbit.NewClient(options...)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client != nil {
		_ = d.client.Close()
	}
	d.client = client
	return object{"address": client.Address()}, nil
}

// within bounds a context by a number of seconds, if there is one.
func within(ctx context.Context, seconds *float64) (context.Context, context.CancelFunc) {
	if seconds == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, span(*seconds))
}

func span(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

func (d *driver) deploy(ctx context.Context, c command) (object, error) {
	args := read[struct {
		Source       string `json:"source"`
		FileName     string `json:"file_name"`
		ValidateOnly bool   `json:"validate_only"`
	}](c)
	client, err := d.theClient()
	if err != nil {
		return nil, err
	}
	deploy := client.Deploy
	if args.ValidateOnly {
		deploy = client.Validate
	}
	deployed, err := deploy(ctx, orbit.Source{Text: args.Source, FileName: args.FileName})
	if err != nil {
		return nil, err
	}
	one := deployed[0]
	return object{"name": one.Name, "version": one.Version, "hash": one.Hash, "created": one.Created}, nil
}

func (d *driver) start(ctx context.Context, c command) (object, error) {
	args := read[struct {
		Workflow          string            `json:"workflow"`
		Version           string            `json:"version"`
		ID                string            `json:"id"`
		InputJSON         *string           `json:"input_json"`
		Labels            map[string]string `json:"labels"`
		RequestID         string            `json:"request_id"`
		StartDelaySeconds *float64          `json:"start_delay_seconds"`
		IDReusePolicy     string            `json:"id_reuse_policy"`
		TimeoutSeconds    *float64          `json:"timeout_seconds"`
	}](c)
	client, err := d.theClient()
	if err != nil {
		return nil, err
	}
	options := []orbit.StartOption{orbit.WithID(args.ID), orbit.WithVersion(args.Version), orbit.WithLabels(args.Labels)}
	if args.RequestID != "" {
		options = append(options, orbit.WithRequestID(args.RequestID))
	}
	if args.StartDelaySeconds != nil {
		options = append(options, orbit.WithStartDelay(span(*args.StartDelaySeconds)))
	}
	switch args.IDReusePolicy {
	case "reject":
		options = append(options, orbit.WithIDReuse(orbit.IDReuseReject))
	case "allow_when_closed":
		options = append(options, orbit.WithIDReuse(orbit.IDReuseAllowWhenClosed))
	case "terminate_running":
		options = append(options, orbit.WithIDReuse(orbit.IDReuseTerminateRunning))
	}
	ctx, cancel := within(ctx, args.TimeoutSeconds)
	defer cancel()
	handle, err := client.Start(ctx, args.Workflow, value(args.InputJSON), options...)
	if err != nil {
		return nil, err
	}
	return object{"id": handle.ID(), "uid": handle.UID(), "version": handle.Version(), "created": handle.Created()}, nil
}

// reference is what names an execution in a command, with a time limit.
type reference struct {
	ID             string   `json:"id"`
	UID            string   `json:"uid"`
	TimeoutSeconds *float64 `json:"timeout_seconds"`
	Reason         string   `json:"reason"`
}

// handle gives the handle of a command's execution.
func (d *driver) handle(r reference) (*orbit.ExecutionHandle, error) {
	client, err := d.theClient()
	if err != nil {
		return nil, err
	}
	if r.UID != "" {
		return client.ExecutionByUID(r.ID, r.UID), nil
	}
	return client.Execution(r.ID), nil
}

func (d *driver) result(ctx context.Context, c command) (object, error) {
	args := read[reference](c)
	handle, err := d.handle(args)
	if err != nil {
		return nil, err
	}
	ctx, cancel := within(ctx, args.TimeoutSeconds)
	defer cancel()
	output, err := orbit.Result[any](ctx, handle)
	if err != nil {
		return nil, err
	}
	return object{"output_json": text(output)}, nil
}

func (d *driver) wait(ctx context.Context, c command) (object, error) {
	args := read[reference](c)
	handle, err := d.handle(args)
	if err != nil {
		return nil, err
	}
	ctx, cancel := within(ctx, args.TimeoutSeconds)
	defer cancel()
	execution, err := handle.Wait(ctx)
	if err != nil {
		return nil, err
	}
	return object{"state": execution.State}, nil
}

func (d *driver) describe(ctx context.Context, c command) (object, error) {
	args := read[reference](c)
	handle, err := d.handle(args)
	if err != nil {
		return nil, err
	}
	ctx, cancel := within(ctx, args.TimeoutSeconds)
	defer cancel()
	execution, err := handle.Describe(ctx)
	if err != nil {
		return nil, err
	}
	steps := []object{}
	for _, step := range execution.Steps {
		steps = append(steps, object{"step": step.ID, "state": step.State, "attempt": step.Attempt,
			"delivery": step.Delivery, "output_json": optional(step.Proto().Output != nil, step.Output)})
	}
	return object{
		"id": execution.ID, "uid": execution.UID, "workflow": execution.Workflow, "version": execution.Version,
		"state": execution.State, "labels": execution.Labels, "steps": steps,
		"input_json":  optional(execution.Proto().Input != nil, execution.Input),
		"output_json": optional(execution.Proto().Output != nil, execution.Output),
	}, nil
}

// optional gives a payload as text, or null where there is none.
func optional(there bool, read func(any) error) any {
	var v any
	if !there {
		return nil
	}
	if err := read(&v); err != nil {
		panic(err)
	}
	return text(v)
}

func (d *driver) signal(ctx context.Context, c command) (object, error) {
	args := read[struct {
		reference
		Name        string  `json:"name"`
		PayloadJSON *string `json:"payload_json"`
		RequestID   string  `json:"request_id"`
	}](c)
	handle, err := d.handle(args.reference)
	if err != nil {
		return nil, err
	}
	var options []orbit.CallOption
	if args.RequestID != "" {
		options = append(options, orbit.WithRequestID(args.RequestID))
	}
	number, err := handle.Signal(ctx, args.Name, value(args.PayloadJSON), options...)
	return object{"event_number": number}, err
}

func (d *driver) query(ctx context.Context, c command) (object, error) {
	args := read[struct {
		reference
		Query string `json:"query"`
	}](c)
	handle, err := d.handle(args.reference)
	if err != nil {
		return nil, err
	}
	var result any
	if err := handle.Query(ctx, args.Query, &result); err != nil {
		return nil, err
	}
	return object{"result_json": text(result)}, nil
}

func (d *driver) cancel(ctx context.Context, c command) (object, error) {
	args := read[reference](c)
	handle, err := d.handle(args)
	if err != nil {
		return nil, err
	}
	return nil, handle.Cancel(ctx, args.Reason)
}

func (d *driver) terminate(ctx context.Context, c command) (object, error) {
	args := read[reference](c)
	handle, err := d.handle(args)
	if err != nil {
		return nil, err
	}
	return nil, handle.Terminate(ctx, args.Reason)
}

func (d *driver) list(ctx context.Context, c command) (object, error) {
	args := read[struct {
		Filter   string `json:"filter"`
		PageSize int    `json:"page_size"`
		Limit    *int   `json:"limit"`
	}](c)
	client, err := d.theClient()
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for execution, err := range client.List(ctx, orbit.ListOptions{Filter: args.Filter, PageSize: args.PageSize}) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, execution.ID)
		if args.Limit != nil && len(ids) >= *args.Limit {
			break
		}
	}
	return object{"ids": ids}, nil
}

func (d *driver) rerun(ctx context.Context, c command) (object, error) {
	args := read[struct {
		reference
		FromStep  string            `json:"from_step"`
		NewID     string            `json:"new_id"`
		InputJSON *string           `json:"input_json"`
		Labels    map[string]string `json:"labels"`
		RequestID string            `json:"request_id"`
	}](c)
	handle, err := d.handle(args.reference)
	if err != nil {
		return nil, err
	}
	var options []orbit.CallOption
	if args.RequestID != "" {
		options = append(options, orbit.WithRequestID(args.RequestID))
	}
	made, err := handle.Rerun(ctx, args.FromStep,
		orbit.RerunOptions{ID: args.NewID, Input: value(args.InputJSON), Labels: args.Labels}, options...)
	if err != nil {
		return nil, err
	}
	return object{"id": made.ID(), "uid": made.UID(), "version": made.Version(), "created": made.Created()}, nil
}

func (d *driver) countAll(ctx context.Context, _ command) (object, error) {
	client, err := d.theClient()
	if err != nil {
		return nil, err
	}
	counts, err := client.Count(ctx)
	return object{"counts": counts}, err
}

func (d *driver) definitions(ctx context.Context, c command) (object, error) {
	args := read[struct{ Name string }](c)
	client, err := d.theClient()
	if err != nil {
		return nil, err
	}
	found := []string{}
	for one, err := range client.Definitions(ctx, args.Name) {
		if err != nil {
			return nil, err
		}
		found = append(found, one.Name+"@"+one.Version)
	}
	return object{"definitions": found}, nil
}

func (d *driver) definition(ctx context.Context, c command) (object, error) {
	args := read[struct{ Name, Version string }](c)
	client, err := d.theClient()
	if err != nil {
		return nil, err
	}
	found, err := client.Definition(ctx, args.Name, args.Version)
	if err != nil {
		return nil, err
	}
	return object{"version": found.Definition.Version, "hash": found.Hash, "source": found.Source}, nil
}

func (d *driver) events(ctx context.Context, c command) (object, error) {
	args := read[struct {
		reference
		After int64 `json:"after"`
		Limit *int  `json:"limit"`
	}](c)
	handle, err := d.handle(args.reference)
	if err != nil {
		return nil, err
	}
	ctx, cancel := within(ctx, args.TimeoutSeconds)
	defer cancel()
	events := []object{}
	for event, err := range handle.Events(ctx, args.After) {
		if err != nil {
			return nil, err
		}
		d.tell(object{"event": "execution_event", "command": c.ID, "number": event.Number, "type": event.Type})
		events = append(events, object{"number": event.Number, "type": event.Type})
		if args.Limit != nil && len(events) >= *args.Limit {
			break
		}
	}
	return object{"events": events}, nil
}
