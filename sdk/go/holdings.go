package orbit

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	workerv1 "orbit.example/sdk/go/gen/orbit/worker/v1"
	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

const (
	// batchBytesMax is how much goes into one frame of reports, and into one heartbeat of progress: far below the
	// server's message limit, since a single output may have 2 MiB.
	batchBytesMax = 1 << 20
	// batchReportsMax is the most reports in one frame.
	batchReportsMax = 1000
)

// A held is one task, from its receipt until its report was answered. The holdings' lock guards it.
type held struct {
	task   *workflowv1.Task
	ctx    context.Context
	cancel context.CancelCauseFunc
	// isStopping: the handler was asked to stop.
	isStopping bool
	// isRefused: a report was refused for good and replaced once.
	isRefused bool
	// report is what the handler's end gave; nil while it runs.
	report *workerv1.Report
	// isSent: the report is on its way on the present connection, or waits out a pause.
	isSent bool

	// progress is the newest; it is sent while isFresh, and again if the connection breaks before isFlying ends.
	progress          *workflowv1.Payload
	isFresh, isFlying bool
	// beat and beatFlying are the same for a beat without progress.
	beat, beatFlying bool
	lastBeat         time.Time
	// reportWaitsForBeat: the report is kept back until the progress has arrived.
	reportWaitsForBeat bool
}

// holdings are the tasks that a worker holds, at most slots. Both connections, stream and polls, share this bookkeeping,
// and it outlives them: what was finished during an outage waits here until it ends.
type holdings struct {
	slots int
	// prepare makes what is held of a task, and start runs its handler, which ends with finish.
	prepare func(*workflowv1.Task) *held
	start   func(*held)
	// wake has a token if there may be something to send: a report, a slot, a beat that is due.
	wake chan struct{}

	mu   sync.Mutex
	held map[string]*held
	// ready are those whose report is to be sent, oldest first.
	ready   []*held
	running int
	taking  bool
	// givingBack: something is given back since no more is wanted.
	givingBack bool
	// beatTime is when a handler's beat must have left; zero if none is waiting.
	beatTime time.Time
	// interval is the server's pause between heartbeats.
	interval time.Duration
	// What became of tasks once no more were wanted: reported and answered, given back, their report refused for good.
	reported, released, dropped int
	// changed is closed when a task is held no longer, or its handler ends; nil while nobody waits for that.
	changed chan struct{}
}

func newHoldings(slots int) *holdings {
	return &holdings{slots: slots, wake: make(chan struct{}, 1), held: map[string]*held{}, taking: true, interval: time.Second}
}

// signal wakes whoever sends.
func (h *holdings) signal() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// change gives a channel that is closed by the next tell. The lock must be held.
func (h *holdings) change() <-chan struct{} {
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

// tell wakes whoever waits for an end. The lock must be held.
func (h *holdings) tell() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// free tells how many more tasks may come. A slot is free again once its report was answered, so this also bounds how
// many reports can wait during an outage.
func (h *holdings) free() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.taking {
		return 0
	}
	return max(0, h.slots-len(h.held))
}

// room waits until a task may come and tells how many may; 0 if the context ends first.
func (h *holdings) room(ctx context.Context) int {
	for {
		h.mu.Lock()
		if free := h.slots - len(h.held); h.taking && free > 0 {
			h.mu.Unlock()
			return free
		}
		changed := h.change()
		h.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return 0
		}
	}
}

// setInterval sets the server's pause between heartbeats.
func (h *holdings) setInterval(interval time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.interval = interval
}

// count tells how many tasks are held and how many of their handlers run.
func (h *holdings) count() (held, running int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held), h.running
}

// accept takes tasks in and starts their handlers. Once no more are wanted they go back unstarted.
func (h *holdings) accept(tasks []*workflowv1.Task) {
	if len(tasks) == 0 {
		return
	}
	fresh := make([]*held, 0, len(tasks))
	h.mu.Lock()
	for _, task := range tasks {
		if h.held[task.TaskToken] != nil {
			continue
		}
		one := h.prepare(task)
		h.held[task.TaskToken] = one
		if h.taking {
			h.running++
			fresh = append(fresh, one)
		} else {
			h.enqueue(one, &workerv1.Report{TaskToken: task.TaskToken, Kind: &workerv1.Report_Release{Release: &workerv1.Release{}}})
		}
	}
	h.mu.Unlock()
	for _, one := range fresh {
		h.start(one)
	}
	if len(fresh) < len(tasks) {
		h.signal()
	}
}

// enqueue gives a task its report. The lock must be held.
func (h *holdings) enqueue(one *held, report *workerv1.Report) {
	one.report, one.isSent = report, false
	h.ready = append(h.ready, one)
	h.noteRelease(report)
}

// noteRelease notes that something is given back while no more is wanted. The lock must be held.
func (h *holdings) noteRelease(report *workerv1.Report) {
	if _, released := report.Kind.(*workerv1.Report_Release); released && !h.taking {
		h.givingBack = true
	}
}

// isGivingBack tells whether something is given back since no more is wanted.
func (h *holdings) isGivingBack() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.givingBack
}

// finish takes the report of a handler that has ended.
func (h *holdings) finish(one *held, report *workerv1.Report) {
	h.mu.Lock()
	h.running--
	if one.report != nil || h.held[report.TaskToken] != one {
		// It was given back while it still ran.
		h.tell()
		h.mu.Unlock()
		return
	}
	one.report = report
	h.noteRelease(report)
	if _, completed := report.Kind.(*workerv1.Report_Complete); !completed && (one.isFresh || one.isFlying) {
		// The next attempt is to find the progress, so it arrives first.
		one.reportWaitsForBeat = true
		h.beatTime = time.Now()
	} else {
		h.ready = append(h.ready, one)
	}
	h.tell()
	h.mu.Unlock()
	h.signal()
}

// unsent takes the reports that are to be sent now, at most a batch; they count as sent until connectionLost.
func (h *holdings) unsent() []*workerv1.Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ready) == 0 {
		return nil
	}
	reports := make([]*workerv1.Report, 0, min(len(h.ready), batchReportsMax))
	size, taken := 0, 0
	for _, one := range h.ready {
		bytes := proto.Size(one.report)
		if len(reports) > 0 && (size+bytes > batchBytesMax || len(reports) == batchReportsMax) {
			break
		}
		taken++
		if h.held[one.report.TaskToken] != one || one.isSent {
			continue
		}
		size += bytes
		one.isSent = true
		reports = append(reports, one.report)
	}
	h.ready = h.ready[taken:]
	if len(h.ready) > 0 {
		h.signal()
	} else {
		h.ready = nil
	}
	return reports
}

// beat notes a beat of a handler, perhaps with progress.
func (h *holdings) beat(one *held, progress *workflowv1.Payload) {
	h.mu.Lock()
	one.beat = true
	if progress != nil {
		one.progress, one.isFresh = progress, true
	}
	pause := h.interval
	if timeout := one.task.HeartbeatTimeout.AsDuration(); timeout > 0 {
		pause = min(pause, timeout/3)
	}
	due := one.lastBeat.Add(pause)
	sooner := h.beatTime.IsZero() || due.Before(h.beatTime)
	if sooner {
		h.beatTime = due
	}
	h.mu.Unlock()
	if sooner {
		h.signal()
	}
}

// beatDue tells when the next heartbeat must leave, at the latest at regular.
func (h *holdings) beatDue(regular time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.beatTime.IsZero() && h.beatTime.Before(regular) {
		return h.beatTime
	}
	return regular
}

// heartbeat makes a heartbeat that lists every token that is held. There is one at a time, so what an earlier one carried and
// is not answered goes along again.
func (h *holdings) heartbeat(sessionID string) *workerv1.HeartbeatRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beatTime = time.Time{}
	now := time.Now()
	request := &workerv1.HeartbeatRequest{SessionId: sessionID, Held: make([]*workerv1.HeldTask, 0, len(h.held))}
	size := 0
	for token, one := range h.held {
		one.beat = one.beat || one.beatFlying
		listed := &workerv1.HeldTask{TaskToken: token, Beat: one.beat}
		if one.isFresh || one.isFlying {
			size += len(one.progress.GetJson())
			if size > batchBytesMax {
				// It goes along with the next one, at once.
				h.beatTime, one.isFresh = now, true
				request.Held = append(request.Held, listed)
				continue
			}
			listed.Progress = one.progress
			one.isFresh, one.isFlying = false, true
		}
		if one.beat {
			one.beat, one.beatFlying, one.lastBeat = false, true, now
		}
		request.Held = append(request.Held, listed)
	}
	return request
}

// heard takes the answer to the newest heartbeat: what it carried has arrived, and what is not wanted is stopped.
func (h *holdings) heard(stop []string, stopped func(*held)) {
	h.mu.Lock()
	released := false
	for _, one := range h.held {
		one.isFlying, one.beatFlying = false, false
		if one.reportWaitsForBeat && !one.isFresh {
			one.reportWaitsForBeat = false
			h.ready = append(h.ready, one)
			released = true
		}
	}
	var stopping []*held
	for _, token := range stop {
		if one := h.held[token]; one != nil && one.report == nil && !one.isStopping {
			one.isStopping = true
			stopping = append(stopping, one)
		}
	}
	h.mu.Unlock()
	for _, one := range stopping {
		stopped(one)
	}
	if released {
		h.signal()
	}
}

// answered: the server took a report, or told why it changes nothing. The task is held no longer.
func (h *holdings) answered(tokens ...string) []*held {
	gone := make([]*held, 0, len(tokens))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, token := range tokens {
		if one := h.held[token]; one != nil {
			delete(h.held, token)
			gone = append(gone, one)
			h.note(one)
		}
	}
	h.tell()
	return gone
}

// note counts a task whose report was answered, for the worker's last line. The lock must be held.
func (h *holdings) note(one *held) {
	if h.taking {
		return
	}
	if _, released := one.report.GetKind().(*workerv1.Report_Release); released {
		h.released++
	} else {
		h.reported++
	}
}

// drop forgets a task whose report the server refuses for good.
func (h *holdings) drop(token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[token] == nil {
		return
	}
	delete(h.held, token)
	if !h.taking {
		h.dropped++
	}
	h.tell()
}

// farewell tells what became of tasks since no more were wanted.
func (h *holdings) farewell() (reported, released, unreported int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reported, h.released, h.dropped + len(h.held)
}

// again sends a report once more, after a pause.
func (h *holdings) again(token string, pause time.Duration) {
	requeue := func() {
		h.mu.Lock()
		one := h.held[token]
		if one != nil && one.isSent {
			h.enqueue(one, one.report)
		}
		h.mu.Unlock()
		h.signal()
	}
	if pause <= 0 {
		requeue()
		return
	}
	time.AfterFunc(pause, requeue)
}

// replace gives a task whose report was refused for good another one, once; false if that was refused, too.
func (h *holdings) replace(token string, report *workerv1.Report) (*held, bool) {
	h.mu.Lock()
	one := h.held[token]
	if one == nil || one.isRefused {
		h.mu.Unlock()
		return one, one == nil
	}
	one.isRefused = true
	h.enqueue(one, report)
	h.mu.Unlock()
	h.signal()
	return one, true
}

// connectionLost: what was sent and not answered is unknown. All of it is sent again, which does no harm.
func (h *holdings) connectionLost() {
	h.mu.Lock()
	h.ready = nil
	for _, one := range h.held {
		one.isFresh = one.isFresh || one.isFlying
		one.beat = one.beat || one.beatFlying
		one.isFlying, one.beatFlying = false, false
		if one.report != nil && !one.reportWaitsForBeat {
			h.enqueue(one, one.report)
		}
		if one.reportWaitsForBeat {
			h.beatTime = time.Now()
		}
	}
	h.mu.Unlock()
	h.signal()
}

// dropProgress forgets progress that was not sent: the server refuses it.
func (h *holdings) dropProgress() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.held {
		one.isFresh, one.isFlying = false, false
		if one.reportWaitsForBeat {
			one.reportWaitsForBeat = false
			h.enqueue(one, one.report)
		}
	}
}

// takeNoMore: from now on every task that still comes goes back unstarted.
func (h *holdings) takeNoMore() {
	h.mu.Lock()
	h.taking = false
	h.mu.Unlock()
	h.signal()
}

// stopAll ends the contexts of all handlers that still run.
func (h *holdings) stopAll(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.held {
		if one.report == nil && one.cancel != nil {
			one.cancel(cause)
		}
	}
}

// releaseRunning gives back the tasks whose handlers do not end, and returns them.
func (h *holdings) releaseRunning() []*held {
	h.mu.Lock()
	var late []*held
	for token, one := range h.held {
		if one.report == nil {
			h.enqueue(one, &workerv1.Report{TaskToken: token, Kind: &workerv1.Report_Release{Release: &workerv1.Release{}}})
			late = append(late, one)
		}
	}
	h.mu.Unlock()
	h.signal()
	return late
}

// list gives all that is held.
func (h *holdings) list() []*held {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*held, 0, len(h.held))
	for _, one := range h.held {
		all = append(all, one)
	}
	return all
}

// wait waits until done says so, or until the deadline; it tells which.
func (h *holdings) wait(deadline time.Time, done func(held, running int) bool) bool {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for {
		h.mu.Lock()
		ready, changed := done(len(h.held), h.running), h.change()
		h.mu.Unlock()
		if ready {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		}
	}
}
