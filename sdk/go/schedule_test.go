package orbit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	orbit "orbit.example/sdk/go"
	"orbit.example/sdk/go/orbittest"
)

func TestAScheduleStartsExecutions(t *testing.T) {
	_, client := server(t)
	worker := orbit.NewWorker(client)
	orbit.Handle(worker, "greet@1", greet)
	orbittest.RunWorker(t, worker)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	definition := orbit.ScheduleDefinition{
		Spec:        orbit.ScheduleSpec{Crons: []string{"0 6 * * *"}, Timezone: "Europe/London"},
		Start:       orbit.ScheduleStart{Workflow: "greet", Input: map[string]any{"name": "${ schedule.id }", "n": 1}},
		Policies:    orbit.SchedulePolicies{Overlap: orbit.OverlapAllow, CatchupWindow: time.Hour},
		Description: "every morning",
		Paused:      true,
		PauseNote:   "not yet",
	}
	made, err := client.CreateSchedule(ctx, "morning", definition)
	if err != nil {
		t.Fatal(err)
	}
	if made.State != orbit.SchedulePaused || made.PauseNote != "not yet" || made.Description != "every morning" {
		t.Errorf("%+v", made)
	}
	if _, err := client.CreateSchedule(ctx, "morning", definition); !errors.Is(err, orbit.ErrAlreadyExists) {
		t.Errorf("made twice: %v", err)
	}
	handle := client.Schedule("morning")
	if resumed, err := handle.Resume(ctx); err != nil || resumed.State != orbit.ScheduleActive || resumed.NextTime.Before(time.Now()) {
		t.Errorf("%+v, %v", resumed, err)
	}

	slot, err := handle.Trigger(ctx)
	if err != nil || slot.Kind != "TRIGGER" || slot.Outcome != "STARTED" {
		t.Fatalf("%+v, %v", slot, err)
	}
	if got, err := orbit.Result[string](ctx, client.Execution(slot.ExecutionID)); err != nil || got != "hello morning 1" {
		t.Errorf("%q, %v", got, err)
	}
	count := 0
	for slot, err := range handle.Slots(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if slot.ExecutionID == "" {
			t.Errorf("%+v", slot)
		}
		count++
	}
	if count != 1 {
		t.Errorf("%d slots", count)
	}

	next, err := handle.Preview(ctx, time.Time{}, 3)
	if err != nil || len(next.Slots) < 3 || !next.StopTime.IsZero() {
		t.Errorf("%v, %v", next, err)
	}
	hourly := orbit.ScheduleSpec{Intervals: []orbit.Interval{{Every: time.Hour, Offset: time.Minute}}}
	if planned, err := client.PreviewSchedule(ctx, hourly, time.Now(), 2); err != nil || len(planned.Slots) != 2 ||
		planned.Slots[1].NominalTime.Sub(planned.Slots[0].NominalTime) != time.Hour {
		t.Errorf("%v, %v", planned, err)
	}
	text := "every hour"
	updated, err := handle.IfUnchanged(made.ETag+"x").Update(ctx, orbit.ScheduleUpdate{Spec: &hourly, Description: &text})
	if !errors.Is(err, orbit.ErrAborted) {
		t.Errorf("updated in spite of another etag: %+v, %v", updated, err)
	}
	updated, err = handle.Update(ctx, orbit.ScheduleUpdate{Spec: &hourly, Description: &text})
	if err != nil || updated.Description != text || time.Until(updated.NextTime) > time.Hour || updated.Proto().Policies.CatchupWindow.AsDuration() != time.Hour {
		t.Errorf("%+v, %v", updated, err)
	}
	ids := ""
	for schedule, err := range client.Schedules(ctx, "greet") {
		if err != nil {
			t.Fatal(err)
		}
		ids += schedule.ID
	}
	if ids != "morning" {
		t.Errorf("%q", ids)
	}
	if err := handle.Delete(ctx); err != nil {
		t.Error(err)
	}
	if _, err := handle.Describe(ctx); !errors.Is(err, orbit.ErrNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
}
