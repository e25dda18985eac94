package main

import (
	"context"
	"strings"
	"time"

	orbit "orbit.example/sdk/go"
)

// scheduling are the arguments of the commands about schedules.
type scheduling struct {
	ID             string            `json:"id"`
	Workflow       string            `json:"workflow"`
	Version        string            `json:"version"`
	Crons          []string          `json:"crons"`
	EverySeconds   *float64          `json:"every_seconds"`
	Timezone       string            `json:"timezone"`
	InputJSON      *string           `json:"input_json"`
	Labels         map[string]string `json:"labels"`
	Overlap        string            `json:"overlap"`
	MaxActions     int64             `json:"max_actions"`
	PauseOnFailure bool              `json:"pause_on_failure"`
	Description    *string           `json:"description"`
	Paused         bool              `json:"paused"`
	Note           string            `json:"note"`
	ETag           string            `json:"etag"`
	FirstTime      time.Time         `json:"first_time"`
	LastTime       time.Time         `json:"last_time"`
	AfterTime      time.Time         `json:"after_time"`
	Concurrency    int               `json:"concurrency"`
	Count          *int              `json:"count"`
	RequestID      string            `json:"request_id"`
}

func (s scheduling) options() []orbit.CallOption {
	if s.RequestID == "" {
		return nil
	}
	return []orbit.CallOption{orbit.WithRequestID(s.RequestID)}
}

func (s scheduling) spec() orbit.ScheduleSpec {
	spec := orbit.ScheduleSpec{Crons: s.Crons, Timezone: s.Timezone}
	if s.EverySeconds != nil {
		spec.Intervals = []orbit.Interval{{Every: span(*s.EverySeconds)}}
	}
	return spec
}

func (s scheduling) overlap() orbit.Overlap { return orbit.Overlap(strings.ToUpper(s.Overlap)) }

// scheduleOps are the commands about schedules.
func (d *driver) scheduleOps() map[string]operation {
	// with gives a command its arguments, and the handle that they name.
	with := func(do func(context.Context, *orbit.ScheduleHandle, scheduling) (object, error)) operation {
		return func(ctx context.Context, c command) (object, error) {
			client, err := d.theClient()
			if err != nil {
				return nil, err
			}
			args := read[scheduling](c)
			handle := client.Schedule(args.ID)
			if args.ETag != "" {
				handle = handle.IfUnchanged(args.ETag)
			}
			return do(ctx, handle, args)
		}
	}
	return map[string]operation{
		"schedule.create":  d.createSchedule,
		"schedule.list":    d.listSchedules,
		"schedule.preview": d.previewSchedule,
		"schedule.get": with(func(ctx context.Context, h *orbit.ScheduleHandle, _ scheduling) (object, error) {
			return scheduleObject(h.Describe(ctx))
		}),
		"schedule.update": with(updateSchedule),
		"schedule.pause": with(func(ctx context.Context, h *orbit.ScheduleHandle, s scheduling) (object, error) {
			return scheduleObject(h.Pause(ctx, s.Note, s.options()...))
		}),
		"schedule.resume": with(func(ctx context.Context, h *orbit.ScheduleHandle, s scheduling) (object, error) {
			return scheduleObject(h.Resume(ctx, s.options()...))
		}),
		"schedule.trigger": with(func(ctx context.Context, h *orbit.ScheduleHandle, s scheduling) (object, error) {
			slot, err := h.TriggerWith(ctx, s.overlap(), s.options()...)
			if err != nil {
				return nil, err
			}
			return slotObject(slot), nil
		}),
		"schedule.backfill": with(func(ctx context.Context, h *orbit.ScheduleHandle, s scheduling) (object, error) {
			request, err := h.Backfill(ctx, s.FirstTime, s.LastTime, s.Concurrency, s.options()...)
			return object{"request": request}, err
		}),
		"schedule.slots": with(func(ctx context.Context, h *orbit.ScheduleHandle, _ scheduling) (object, error) {
			slots := []object{}
			for slot, err := range h.Slots(ctx) {
				if err != nil {
					return nil, err
				}
				slots = append(slots, slotObject(slot))
			}
			return object{"slots": slots}, nil
		}),
		"schedule.delete": with(func(ctx context.Context, h *orbit.ScheduleHandle, s scheduling) (object, error) {
			return nil, h.Delete(ctx, s.options()...)
		}),
	}
}

func (d *driver) createSchedule(ctx context.Context, c command) (object, error) {
	args := read[scheduling](c)
	client, err := d.theClient()
	if err != nil {
		return nil, err
	}
	definition := orbit.ScheduleDefinition{
		Spec: args.spec(),
		Start: orbit.ScheduleStart{
			Workflow: args.Workflow, Version: args.Version, Input: value(args.InputJSON), Labels: args.Labels},
		Policies: orbit.SchedulePolicies{
			Overlap: args.overlap(), MaxActions: args.MaxActions, PauseOnFailure: args.PauseOnFailure},
		Paused: args.Paused,
	}
	if args.Description != nil {
		definition.Description = *args.Description
	}
	return scheduleObject(client.CreateSchedule(ctx, args.ID, definition, args.options()...))
}

func updateSchedule(ctx context.Context, handle *orbit.ScheduleHandle, args scheduling) (object, error) {
	update := orbit.ScheduleUpdate{Description: args.Description}
	if args.Crons != nil || args.Timezone != "" {
		// What is given changes one part of the spec; here the whole spec is replaced, so the rest is read before.
		was, err := handle.Describe(ctx)
		if err != nil {
			return nil, err
		}
		spec := orbit.ScheduleSpec{Crons: was.Proto().Spec.Crons, Timezone: was.Proto().Spec.Timezone}
		if args.Crons != nil {
			spec.Crons = args.Crons
		}
		if args.Timezone != "" {
			spec.Timezone = args.Timezone
		}
		update.Spec = &spec
	}
	return scheduleObject(handle.Update(ctx, update, args.options()...))
}

func (d *driver) listSchedules(ctx context.Context, c command) (object, error) {
	client, err := d.theClient()
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for schedule, err := range client.Schedules(ctx, read[scheduling](c).Workflow) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, schedule.ID)
	}
	return object{"ids": ids}, nil
}

func (d *driver) previewSchedule(ctx context.Context, c command) (object, error) {
	args := read[scheduling](c)
	client, err := d.theClient()
	if err != nil {
		return nil, err
	}
	count := 10
	if args.Count != nil {
		count = *args.Count
	}
	var preview *orbit.SchedulePreview
	if args.ID != "" {
		preview, err = client.Schedule(args.ID).Preview(ctx, args.AfterTime, count)
	} else {
		preview, err = client.PreviewSchedule(ctx, args.spec(), args.AfterTime, count)
	}
	if err != nil {
		return nil, err
	}
	slots := []object{}
	for _, slot := range preview.Slots {
		slots = append(slots, object{"nominal_time": timeText(slot.NominalTime), "skip": slot.Skip})
	}
	return object{"slots": slots, "unlisted": preview.Unlisted, "stop_time": timeText(preview.StopTime)}, nil
}

func scheduleObject(schedule *orbit.Schedule, err error) (object, error) {
	if err != nil {
		return nil, err
	}
	return object{
		"id": schedule.ID, "uid": schedule.UID, "etag": schedule.ETag, "state": schedule.State,
		"workflow": schedule.Workflow, "description": schedule.Description, "pause_note": schedule.PauseNote,
		"invalid_reason": schedule.InvalidReason, "next_time": timeText(schedule.NextTime),
		"last_execution_id": textOrNull(schedule.LastExecutionID),
	}, nil
}

func slotObject(slot *orbit.Slot) object {
	return object{
		"nominal_time": timeText(slot.NominalTime), "kind": slot.Kind, "outcome": slot.Outcome,
		"execution_id": textOrNull(slot.ExecutionID), "request": slot.Request, "count": slot.Count,
	}
}

// timeText gives a time as RFC 3339 has it; null of the zero time.
func timeText(at time.Time) any {
	if at.IsZero() {
		return nil
	}
	return at.UTC().Format(time.RFC3339Nano)
}

func textOrNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}
