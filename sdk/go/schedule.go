package orbit

import (
	"context"
	"iter"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	schedulev1 "orbit.example/sdk/go/gen/orbit/schedule/v1"
	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

// A ScheduleSpec says when a schedule is due: the union of its crons, intervals and calendars, without what is excluded.
type ScheduleSpec struct {
	// Crons have the five fields of POSIX, or are a word such as @daily.
	Crons []string
	// Intervals are counted from 1970-01-01T00:00:00Z.
	Intervals []Interval
	// Calendars are dates and times of the day by their parts.
	Calendars []*schedulev1.CalendarRule
	// Exclusions are never slots. Default: none.
	Exclusions *schedulev1.Exclusions
	// Timezone is the IANA name of the zone of crons, calendars and exclusions. Required, but for intervals alone.
	Timezone string
	// StartTime and EndTime bound the slots, both included. Zero: no bound.
	StartTime, EndTime time.Time
	// Jitter is how much later than its slot an execution may start, at most 24 h. Default: not at all.
	Jitter time.Duration
	// MissingTimes says what becomes of local times that do not exist, because clocks are put forward over them. Default: what
	// suits the rule.
	MissingTimes schedulev1.ScheduleSpec_MissingTimes
	// RepeatedTimes says what becomes of local times that exist twice, because clocks are put back over them. Default: what suits
	// the rule.
	RepeatedTimes schedulev1.ScheduleSpec_RepeatedTimes
}

// An Interval is due every so often.
type Interval struct {
	// Every is from one slot to the next, in whole seconds.
	Every time.Duration
	// Offset is how much later than the multiples of Every. Default: not at all.
	Offset time.Duration
}

// A ScheduleStart is what a schedule starts.
type ScheduleStart struct {
	// Workflow that is started.
	Workflow string
	// Version of its definition. Default: the highest release at the time of each start.
	Version string
	// Input, anything that encoding/json can write. Texts in it may hold ${ schedule.nominal_time }, ${ schedule.start_time }
	// and ${ schedule.id }.
	Input any
	// Labels of each execution; the server adds orbit.schedule.
	Labels map[string]string
}

// Overlap is what a slot does while an execution of its schedule is open.
type Overlap string

const (
	// OverlapSkip: the slot is skipped.
	OverlapSkip Overlap = "SKIP"
	// OverlapAllow: it starts beside it.
	OverlapAllow Overlap = "ALLOW"
	// OverlapBufferOne: it waits until none is open. One can wait; while it does, others are skipped.
	OverlapBufferOne Overlap = "BUFFER_ONE"
	// OverlapCancelPrevious: the open ones are asked to cancel, and the slot starts when they have ended.
	OverlapCancelPrevious Overlap = "CANCEL_PREVIOUS"
	// OverlapTerminatePrevious: as before, but they are terminated: no handler and no compensation of theirs runs.
	OverlapTerminatePrevious Overlap = "TERMINATE_PREVIOUS"
)

// message gives the value on the wire; empty is the default.
func (o Overlap) message() (schedulev1.SchedulePolicies_Overlap, error) {
	if o == "" {
		return schedulev1.SchedulePolicies_OVERLAP_UNSPECIFIED, nil
	}
	value, ok := schedulev1.SchedulePolicies_Overlap_value["OVERLAP_"+string(o)]
	if !ok {
		return 0, invalid("policies.overlap", string(o)+" is none that there is")
	}
	return schedulev1.SchedulePolicies_Overlap(value), nil
}

// SchedulePolicies say what a schedule does about slots that meet an open execution, come too late, or are one too many.
type SchedulePolicies struct {
	// Overlap is what a slot does while an execution of the schedule is open. Default: [OverlapSkip].
	Overlap Overlap
	// CatchupWindow is how late a slot may start. Default: 365 days.
	CatchupWindow time.Duration
	// MaxActions is how many slots start in all. Default: no limit.
	MaxActions int64
	// PauseOnFailure pauses the schedule when an execution of it fails or times out, or cannot be started.
	PauseOnFailure bool
}

// A ScheduleDefinition is all that a caller says about a schedule.
type ScheduleDefinition struct {
	// Spec says when. Required.
	Spec ScheduleSpec
	// Start says what. Required.
	Start ScheduleStart
	// Policies say what about slots that meet an open execution, come too late, or are one too many.
	Policies SchedulePolicies
	// Description for people. At most 1,024 characters.
	Description string
	// Paused makes it paused.
	Paused bool
	// PauseNote says why it is made paused, for people. At most 1,024 characters.
	PauseNote string
}

// A ScheduleUpdate has what changes, each as a whole: what is nil stays.
type ScheduleUpdate struct {
	// Spec takes the place of everything about times.
	Spec *ScheduleSpec
	// Start takes the place of what it starts.
	Start *ScheduleStart
	// Policies take the place of the others.
	Policies *SchedulePolicies
	// Description for people.
	Description *string
}

// ScheduleState is where a schedule is in its life. Bear values that you do not know.
type ScheduleState string

// The states of schedules.
const (
	// ScheduleActive: its slots start executions.
	ScheduleActive ScheduleState = "ACTIVE"
	// SchedulePaused: nothing starts by itself.
	SchedulePaused ScheduleState = "PAUSED"
	// ScheduleInvalid: it cannot be used as it is; InvalidReason says why.
	ScheduleInvalid ScheduleState = "INVALID"
	// ScheduleCompleted: no slot is left.
	ScheduleCompleted ScheduleState = "COMPLETED"
)

// A Schedule is what the server tells about one.
type Schedule struct {
	// ID is the caller's.
	ID string
	// UID is the server's, and never used again.
	UID string
	// ETag changes with each change that a caller makes.
	ETag string
	// State is where it is in its life.
	State ScheduleState
	// Workflow that it starts.
	Workflow string
	// Description for people; may be empty.
	Description string
	// PauseNote is why it is paused, InvalidReason why it cannot go on, or why its newest start failed.
	PauseNote, InvalidReason string
	// NextTime is its next slot; zero if there is none, or while it is paused.
	NextTime time.Time
	// LastExecutionID is the execution that it started last; empty if it has started none.
	LastExecutionID string

	message *schedulev1.Schedule
}

// Proto gives the message as it came from the server, with what has no field here: spec, counts, open executions.
func (s *Schedule) Proto() *schedulev1.Schedule { return s.message }

// A Slot is a time of a schedule with what became of it, or several in a row that went alike.
type Slot struct {
	// NominalTime is what the execution is for, whenever it really started.
	NominalTime time.Time
	// Kind is REGULAR, TRIGGER or BACKFILL, Outcome what became of it, for example STARTED, OVERLAPPED or MISSED. Bear values
	// that you do not know.
	Kind, Outcome string
	// ExecutionID is what it started; empty if it has started nothing.
	ExecutionID string
	// Request is the name of the call that asked for it, as [ScheduleHandle.Backfill] returns it; empty for a regular one.
	Request string
	// Count is how many in a row went alike.
	Count int64
	// Detail tells why, for people.
	Detail string

	message *schedulev1.Slot
}

// Proto gives the message as it came from the server, for what has no field here.
func (s *Slot) Proto() *schedulev1.Slot { return s.message }

// A PlannedSlot is a time that is to come, or would come if nothing kept it away.
type PlannedSlot struct {
	// NominalTime is what an execution would be for.
	// NominalTime is what an execution would be for.
	NominalTime time.Time
	// LocalTime is the time in the schedule's zone, with its offset, such as 2026-11-01T01:30:00-04:00.
	LocalTime string
	// Skip is empty for a slot, and otherwise why it is none: EXCLUDED, or, when the clocks are changed, MISSING or REPEATED.
	// Bear values that you do not know.
	Skip string
	// Detail tells more about that, for people.
	Detail string

	message *schedulev1.PlannedSlot
}

// Proto gives the message as it came from the server.
func (s *PlannedSlot) Proto() *schedulev1.PlannedSlot { return s.message }

// A SchedulePreview is what a schedule, or a spec that is not stored, has before it.
type SchedulePreview struct {
	// Slots are the times in order, and beside them those that are left out, of which it has at most 1,000.
	Slots []*PlannedSlot
	// Unlisted is how many more times are left out than Slots tells.
	Unlisted int
	// StopTime is where the look stopped because it had met too many times that are left out: a preview after it goes on. Zero if
	// it has as many slots as were asked for, or all that are left.
	StopTime time.Time
}

// PreviewSchedule tells up to so many slots, at most 1,000, that a schedule with this spec would have after a time (zero: now),
// and beside them the times that are left out and why. Nothing is stored.
func (c *Client) PreviewSchedule(ctx context.Context, spec ScheduleSpec, after time.Time, slots int) (*SchedulePreview, error) {
	return c.preview(ctx, &schedulev1.PreviewScheduleRequest{Spec: spec.message()}, after, slots)
}

func (c *Client) preview(
	ctx context.Context, request *schedulev1.PreviewScheduleRequest, after time.Time, slots int,
) (*SchedulePreview, error) {
	request.AfterTime, request.MaxSlots = timestampOf(after), int32(min(slots, pageSizeMax))
	response, err := invoke(ctx, c, request, c.schedules.PreviewSchedule)
	if err != nil {
		return nil, err
	}
	preview := &SchedulePreview{Unlisted: int(response.UnlistedCount), StopTime: timeOf(response.StopTime)}
	for _, slot := range response.Slots {
		one := &PlannedSlot{NominalTime: timeOf(slot.NominalTime), LocalTime: slot.LocalTime, Detail: slot.Detail, message: slot}
		if slot.Skip != schedulev1.PlannedSlot_SKIP_UNSPECIFIED {
			one.Skip = strings.TrimPrefix(slot.Skip.String(), "SKIP_")
		}
		preview.Slots = append(preview.Slots, one)
	}
	return preview, nil
}

// CreateSchedule makes a schedule. Everything is checked first, and all faults are violations of one error.
func (c *Client) CreateSchedule(ctx context.Context, id string, definition ScheduleDefinition, options ...CallOption) (*Schedule, error) {
	start, err := definition.Start.message()
	if err != nil {
		return nil, err
	}
	policies, err := definition.Policies.message()
	if err != nil {
		return nil, err
	}
	response, err := invoke(ctx, c, &schedulev1.CreateScheduleRequest{
		Id: id, Spec: definition.Spec.message(), Start: start, Policies: policies,
		Description: definition.Description, Paused: definition.Paused, PauseNote: definition.PauseNote, RequestId: requestIDOf(options),
	}, c.schedules.CreateSchedule)
	return newSchedule(response.GetSchedule()), err
}

// Schedules goes through the schedules, by id; a workflow, if it is not empty, chooses those that start it.
func (c *Client) Schedules(ctx context.Context, workflow string) iter.Seq2[*Schedule, error] {
	return pages(func(token string) ([]*Schedule, string, error) {
		response, err := invoke(ctx, c, &schedulev1.ListSchedulesRequest{Workflow: workflow, PageToken: token}, c.schedules.ListSchedules)
		if err != nil {
			return nil, "", err
		}
		schedules := make([]*Schedule, 0, len(response.Schedules))
		for _, schedule := range response.Schedules {
			schedules = append(schedules, newSchedule(schedule))
		}
		return schedules, response.NextPageToken, nil
	})
}

// A ScheduleHandle is a reference to a schedule, for calls about it.
type ScheduleHandle struct {
	client *Client
	id     string
	uid    string
	etag   string
}

// Schedule refers to the schedule with an id. It makes no call, so there may be no such schedule.
func (c *Client) Schedule(id string) *ScheduleHandle { return &ScheduleHandle{client: c, id: id} }

// ScheduleByUID refers to one schedule for ever, also once it was deleted, to read it and what became of its slots.
func (c *Client) ScheduleByUID(id, uid string) *ScheduleHandle {
	return &ScheduleHandle{client: c, id: id, uid: uid}
}

// IfUnchanged refers to the schedule as long as nobody has changed it since it had an etag: otherwise Update, Pause, Resume
// and Delete do nothing and fail with [ErrAborted].
func (h *ScheduleHandle) IfUnchanged(etag string) *ScheduleHandle {
	return &ScheduleHandle{client: h.client, id: h.id, uid: h.uid, etag: etag}
}

// ID is the schedule's id.
func (h *ScheduleHandle) ID() string { return h.id }

// Describe reads the schedule.
func (h *ScheduleHandle) Describe(ctx context.Context) (*Schedule, error) {
	response, err := invoke(ctx, h.client, &schedulev1.GetScheduleRequest{Id: h.id, Uid: h.uid}, h.client.schedules.GetSchedule)
	return newSchedule(response.GetSchedule()), err
}

// Update changes what the update has, each as a whole.
func (h *ScheduleHandle) Update(ctx context.Context, update ScheduleUpdate, options ...CallOption) (*Schedule, error) {
	changed := &schedulev1.Schedule{}
	mask := &fieldmaskpb.FieldMask{}
	if update.Spec != nil {
		changed.Spec = update.Spec.message()
		mask.Paths = append(mask.Paths, "spec")
	}
	if update.Start != nil {
		start, err := update.Start.message()
		if err != nil {
			return nil, err
		}
		changed.Start = start
		mask.Paths = append(mask.Paths, "start")
	}
	if update.Policies != nil {
		policies, err := update.Policies.message()
		if err != nil {
			return nil, err
		}
		changed.Policies = policies
		mask.Paths = append(mask.Paths, "policies")
	}
	if update.Description != nil {
		changed.Description = *update.Description
		mask.Paths = append(mask.Paths, "description")
	}
	response, err := invoke(ctx, h.client, &schedulev1.UpdateScheduleRequest{
		Id: h.id, Schedule: changed, UpdateMask: mask, Etag: h.etag, RequestId: requestIDOf(options)}, h.client.schedules.UpdateSchedule)
	return newSchedule(response.GetSchedule()), err
}

// Pause holds the schedule: no slot starts by itself until it is resumed; those that come meanwhile are passed over.
func (h *ScheduleHandle) Pause(ctx context.Context, note string, options ...CallOption) (*Schedule, error) {
	response, err := invoke(ctx, h.client, &schedulev1.PauseScheduleRequest{
		Id: h.id, Note: note, Etag: h.etag, RequestId: requestIDOf(options)}, h.client.schedules.PauseSchedule)
	return newSchedule(response.GetSchedule()), err
}

// Resume ends a pause, and judges a schedule anew that is invalid.
func (h *ScheduleHandle) Resume(ctx context.Context, options ...CallOption) (*Schedule, error) {
	response, err := invoke(ctx, h.client, &schedulev1.ResumeScheduleRequest{
		Id: h.id, Etag: h.etag, RequestId: requestIDOf(options)}, h.client.schedules.ResumeSchedule)
	return newSchedule(response.GetSchedule()), err
}

// Trigger starts an execution now, beside the schedule's own times, also while it is paused. The slot tells whether it
// started, waits or was skipped, as the schedule's overlap policy has it.
func (h *ScheduleHandle) Trigger(ctx context.Context, options ...CallOption) (*Slot, error) {
	return h.TriggerWith(ctx, "", options...)
}

// TriggerWith is [ScheduleHandle.Trigger] with an overlap policy of its own.
func (h *ScheduleHandle) TriggerWith(ctx context.Context, overlap Overlap, options ...CallOption) (*Slot, error) {
	policy, err := overlap.message()
	if err != nil {
		return nil, err
	}
	response, err := invoke(ctx, h.client, &schedulev1.TriggerScheduleRequest{
		Id: h.id, Overlap: policy, RequestId: requestIDOf(options)}, h.client.schedules.TriggerSchedule)
	return newSlot(response.GetSlot()), err
}

// Backfill starts executions for the schedule's times from first to last, whether they have started before or not, as many at
// once as concurrency says (0 is 1), in the background. It returns the name that their slots have as request.
func (h *ScheduleHandle) Backfill(ctx context.Context, first, last time.Time, concurrency int, options ...CallOption) (string, error) {
	response, err := invoke(ctx, h.client, &schedulev1.BackfillScheduleRequest{
		Id: h.id, FirstTime: timestamppb.New(first), LastTime: timestamppb.New(last),
		Concurrency: int32(min(concurrency, pageSizeMax)), RequestId: requestIDOf(options),
	}, h.client.schedules.BackfillSchedule)
	return response.GetRequest(), err
}

// Preview tells up to so many slots of the schedule, at most 1,000, after a time (zero: now), and beside them the times that
// are left out and why.
func (h *ScheduleHandle) Preview(ctx context.Context, after time.Time, slots int) (*SchedulePreview, error) {
	return h.client.preview(ctx, &schedulev1.PreviewScheduleRequest{Id: h.id}, after, slots)
}

// Slots goes through the schedule's ledger, the newest nominal time first.
func (h *ScheduleHandle) Slots(ctx context.Context) iter.Seq2[*Slot, error] {
	return pages(func(token string) ([]*Slot, string, error) {
		response, err := invoke(ctx, h.client, &schedulev1.ListSlotsRequest{Id: h.id, Uid: h.uid, PageToken: token}, h.client.schedules.ListSlots)
		if err != nil {
			return nil, "", err
		}
		slots := make([]*Slot, 0, len(response.Slots))
		for _, slot := range response.Slots {
			slots = append(slots, newSlot(slot))
		}
		return slots, response.NextPageToken, nil
	})
}

// Delete deletes the schedule; executions that it has started go on.
func (h *ScheduleHandle) Delete(ctx context.Context, options ...CallOption) error {
	_, err := invoke(ctx, h.client, &schedulev1.DeleteScheduleRequest{
		Id: h.id, Etag: h.etag, RequestId: requestIDOf(options)}, h.client.schedules.DeleteSchedule)
	return err
}

func (s ScheduleSpec) message() *schedulev1.ScheduleSpec {
	message := &schedulev1.ScheduleSpec{
		Crons: s.Crons, Calendars: s.Calendars, Exclusions: s.Exclusions, Timezone: s.Timezone,
		StartTime: timestampOf(s.StartTime), EndTime: timestampOf(s.EndTime), Jitter: durationOf(s.Jitter),
		MissingTimes: s.MissingTimes, RepeatedTimes: s.RepeatedTimes,
	}
	for _, interval := range s.Intervals {
		message.Intervals = append(message.Intervals, &schedulev1.IntervalRule{
			Every: durationpb.New(interval.Every), Offset: durationOf(interval.Offset)})
	}
	return message
}

func (s ScheduleStart) message() (*schedulev1.StartTemplate, error) {
	var input *workflowv1.Payload
	if s.Input != nil {
		var err error
		if input, err = encodePayload(s.Input); err != nil {
			return nil, invalid("start.input", "has no JSON form: "+err.Error())
		}
	}
	return &schedulev1.StartTemplate{Workflow: s.Workflow, Version: s.Version, Input: input, Labels: s.Labels}, nil
}

func (p SchedulePolicies) message() (*schedulev1.SchedulePolicies, error) {
	overlap, err := p.Overlap.message()
	if err != nil {
		return nil, err
	}
	return &schedulev1.SchedulePolicies{
		Overlap: overlap, CatchupWindow: durationOf(p.CatchupWindow), MaxActions: p.MaxActions, PauseOnFailure: p.PauseOnFailure,
	}, nil
}

func newSchedule(message *schedulev1.Schedule) *Schedule {
	if message == nil {
		return nil
	}
	return &Schedule{
		ID: message.Id, UID: message.Uid, ETag: message.Etag, State: ScheduleState(shortName(message.State.String())),
		Workflow: message.Start.GetWorkflow(), Description: message.Description, PauseNote: message.PauseNote, InvalidReason: message.InvalidReason,
		NextTime: timeOf(message.NextTime), LastExecutionID: message.LastExecution.GetId(), message: message,
	}
}

func newSlot(message *schedulev1.Slot) *Slot {
	if message == nil {
		return nil
	}
	return &Slot{
		NominalTime: timeOf(message.NominalTime), Kind: strings.TrimPrefix(message.Kind.String(), "KIND_"),
		Outcome:     strings.TrimPrefix(message.Outcome.String(), "OUTCOME_"),
		ExecutionID: message.Execution.GetId(), Request: message.Request, Count: message.SlotCount, Detail: message.Detail, message: message,
	}
}

// timestampOf gives a time's message; none of the zero time.
func timestampOf(at time.Time) *timestamppb.Timestamp {
	if at.IsZero() {
		return nil
	}
	return timestamppb.New(at)
}

// durationOf gives a span's message; none of zero.
func durationOf(span time.Duration) *durationpb.Duration {
	if span == 0 {
		return nil
	}
	return durationpb.New(span)
}
