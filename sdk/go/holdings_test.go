package orbit

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	workerv1 "orbit.example/sdk/go/gen/orbit/worker/v1"
	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

// testHoldings are holdings whose handlers never end by themselves.
func testHoldings(slots int) *holdings {
	h := newHoldings(slots)
	h.prepare = func(task *workflowv1.Task) *held {
		ctx, cancel := context.WithCancelCause(context.Background())
		return &held{task: task, ctx: ctx, cancel: cancel}
	}
	h.start = func(*held) {}
	return h
}

func tasks(tokens ...string) []*workflowv1.Task {
	made := make([]*workflowv1.Task, 0, len(tokens))
	for _, token := range tokens {
		made = append(made, &workflowv1.Task{TaskToken: token})
	}
	return made
}

func completed(token, output string) *workerv1.Report {
	return &workerv1.Report{TaskToken: token, Kind: &workerv1.Report_Complete{Complete: &workerv1.Complete{Output: textPayload(output)}}}
}

func failed(token string) *workerv1.Report {
	return &workerv1.Report{TaskToken: token, Kind: &workerv1.Report_Fail{Fail: &workerv1.Fail{}}}
}

func tokens(reports []*workerv1.Report) string {
	text := ""
	for _, report := range reports {
		text += report.TaskToken
	}
	return text
}

func TestASlotIsFreeOnceItsReportIsAnswered(t *testing.T) {
	h := testHoldings(2)
	h.accept(tasks("a", "b", "a"))
	if h.free() != 0 {
		t.Errorf("%d free", h.free())
	}
	h.finish(h.held["a"], completed("a", "1"))
	if h.unsent(); h.free() != 0 {
		t.Error("a report that is not answered frees a slot")
	}
	if h.answered("a", "unknown"); h.free() != 1 {
		t.Errorf("%d free after the answer", h.free())
	}
}

func TestReportsWaitOutAnOutageAndAreSentAgain(t *testing.T) {
	h := testHoldings(10)
	h.accept(tasks("a", "b", "c"))
	h.finish(h.held["a"], completed("a", "1"))
	h.finish(h.held["b"], completed("b", "2"))
	if got := tokens(h.unsent()); got != "ab" {
		t.Fatalf("sent %q", got)
	}
	if got := tokens(h.unsent()); got != "" {
		t.Errorf("sent twice: %q", got)
	}
	h.answered("a")
	h.connectionLost()
	h.finish(h.held["c"], completed("c", "3"))
	if got := tokens(h.unsent()); got != "bc" {
		t.Errorf("after the outage %q", got)
	}
}

func TestABatchStaysBelowTheMessageLimit(t *testing.T) {
	h := testHoldings(10)
	h.accept(tasks("a", "b", "c"))
	large := string(make([]byte, 700<<10))
	for _, token := range []string{"a", "b", "c"} {
		h.finish(h.held[token], completed(token, large))
	}
	for _, want := range []string{"a", "b", "c", ""} {
		if got := tokens(h.unsent()); got != want {
			t.Errorf("a batch of %q; want %q", got, want)
		}
	}
}

func TestAFailureFollowsItsProgress(t *testing.T) {
	h := testHoldings(10)
	h.accept(tasks("a"))
	one := h.held["a"]
	h.beat(one, textPayload("1"))
	h.finish(one, failed("a"))
	if got := tokens(h.unsent()); got != "" {
		t.Fatal("the failure overtakes the progress that the next attempt is to find")
	}
	beat := h.heartbeat("s")
	if len(beat.Held) != 1 || beat.Held[0].Progress.GetJson() != "1" || !beat.Held[0].Beat {
		t.Errorf("the heartbeat is %v", beat)
	}
	if again := h.heartbeat("s"); again.Held[0].Progress.GetJson() != "1" || !again.Held[0].Beat {
		t.Error("progress without an answer is not sent again")
	}
	h.connectionLost()
	if again := h.heartbeat("s"); again.Held[0].Progress.GetJson() != "1" {
		t.Error("progress without an answer is not sent again on another connection")
	}
	h.heard(nil, nil)
	if got := tokens(h.unsent()); got != "a" {
		t.Errorf("after the answer %q is sent", got)
	}
	if once := h.heartbeat("s"); once.Held[0].Progress != nil || once.Held[0].Beat {
		t.Error("progress that arrived is sent again")
	}
}

func TestABeatLeavesSoonEnoughForItsTimeout(t *testing.T) {
	h := testHoldings(10)
	h.setInterval(10 * time.Second)
	h.accept(tasks("a"))
	one := h.held["a"]
	regular := time.Now().Add(10 * time.Second)
	if due := h.beatDue(regular); !due.Equal(regular) {
		t.Error("a heartbeat is due although nobody beats")
	}
	h.beat(one, nil)
	if due := h.beatDue(regular); time.Until(due) > 0 {
		t.Errorf("the first beat waits for %s", time.Until(due))
	}
	h.heartbeat("s")
	h.heard(nil, nil)
	h.beat(one, nil)
	if wait := time.Until(h.beatDue(regular)); wait < 9*time.Second {
		t.Errorf("without a timeout the second beat leaves after %s", wait)
	}
	h.heartbeat("s")
	one.task.HeartbeatTimeout = durationpb.New(3 * time.Second)
	h.beat(one, nil)
	if wait := time.Until(h.beatDue(regular)); wait > time.Second {
		t.Errorf("with a timeout of 3 s it leaves after %s", wait)
	}
}

func TestADrainingWorkerGivesBackWhatStillComes(t *testing.T) {
	h := testHoldings(10)
	h.accept(tasks("a"))
	h.takeNoMore()
	if h.free() != 0 || h.isGivingBack() {
		t.Errorf("free %d, giving back %v", h.free(), h.isGivingBack())
	}
	h.accept(tasks("b"))
	reports := h.unsent()
	if tokens(reports) != "b" || reports[0].GetRelease() == nil || !h.isGivingBack() {
		t.Errorf("%v", reports)
	}
	if late := h.releaseRunning(); len(late) != 1 || tokens(h.unsent()) != "a" {
		t.Errorf("%v", late)
	}
	// The handler ends after all: what it gave back stays given back.
	h.finish(h.held["a"], completed("a", "1"))
	if got := h.unsent(); len(got) != 0 {
		t.Errorf("reported twice: %v", got)
	}
}

func TestARefusedReportIsReplacedOnceAndThenDropped(t *testing.T) {
	h := testHoldings(10)
	h.accept(tasks("a"))
	h.finish(h.held["a"], completed("a", "1"))
	h.unsent()
	if _, replaced := h.replace("a", failed("a")); !replaced {
		t.Error("not replaced")
	}
	if got := h.unsent(); len(got) != 1 || got[0].GetFail() == nil {
		t.Errorf("%v", got)
	}
	if one, replaced := h.replace("a", failed("a")); one == nil || replaced {
		t.Error("replaced twice")
	}
}
