package orbit

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	workerv1 "orbit.example/sdk/go/gen/orbit/worker/v1"
)

const (
	// pollWait is how long a poll waits for its first task.
	pollWait = 20 * time.Second
	// pollTasksMax is the most tasks of one poll.
	pollTasksMax = 1000
	// reportCallsMax is how many reports are under way at once.
	reportCallsMax = 32
)

// polls works by plain calls: one that waits for tasks, one for each report, and heartbeats.
type polls struct {
	links   *links
	stub    workerv1.WorkerServiceClient
	session session
	// until is when polling ends in favour of a stream; zero for never.
	until time.Time
}

// run works until a call fails for good, or until it is time for a stream.
func (p *polls) run(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var parts sync.WaitGroup
	parts.Add(2)
	go func() {
		defer parts.Done()
		cancel(p.fetch(ctx))
	}()
	go func() {
		defer parts.Done()
		cancel(p.tell(ctx))
	}()
	parts.Wait()
	p.links.worker.holdings.connectionLost()
	return context.Cause(ctx)
}

// fetch polls for as many tasks as there are slots, until the worker stops.
func (p *polls) fetch(ctx context.Context) error {
	worker := p.links.worker
	// A poll ends when the worker begins to drain: nothing more is wanted then.
	fetching, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-worker.draining:
			stop()
		case <-fetching.Done():
		}
	}()
	for {
		room := worker.holdings.room(fetching)
		wait := pollWait
		if !p.until.IsZero() && !worker.isDraining() {
			// The last poll ends in time: one that were cut off could take tasks along.
			if wait = min(wait, time.Until(p.until)); wait <= 0 {
				return errSwitch
			}
		}
		response, err := p.poll(fetching, min(room, pollTasksMax), wait)
		if err == nil {
			worker.holdings.accept(response.Tasks)
		}
		if worker.isDraining() {
			<-ctx.Done()
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		if response.Draining {
			if err := pause(ctx, time.Second); err != nil {
				return err
			}
			continue
		}
		p.links.works(ModePoll)
	}
}

// poll makes one poll.
func (p *polls) poll(ctx context.Context, tasks int, wait time.Duration) (*workerv1.PollTasksResponse, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, pollWait+workerCallTimeout)
	defer cancel()
	return p.stub.PollTasks(ctx, &workerv1.PollTasksRequest{
		SessionId: p.session.id, MaxTasks: int32(tasks), WaitDuration: durationpb.New(wait)})
}

// tell sends reports, several side by side, and heartbeats, one at a time.
func (p *polls) tell(ctx context.Context) error {
	holdings := p.links.worker.holdings
	var calls sync.WaitGroup
	defer calls.Wait()
	failed := make(chan error, 1)
	begin := func(call func(context.Context) error, done func()) {
		calls.Add(1)
		go func() {
			defer calls.Done()
			defer done()
			if err := call(ctx); err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		}()
	}
	slots := make(chan struct{}, reportCallsMax)
	var beatTime time.Time
	beaten := make(chan struct{}, 1)
	beaten <- struct{}{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due := later(holdings.beatDue(beatTime.Add(p.session.interval)), beatTime.Add(beatPause))
		if !time.Now().Before(due) {
			select {
			case <-beaten:
				beatTime = time.Now()
				due = beatTime.Add(p.session.interval)
				begin(p.beat, func() { beaten <- struct{}{}; holdings.signal() })
			default:
				// The end of the one that is under way wakes this.
				due = time.Now().Add(p.session.interval)
			}
		}
		for _, report := range holdings.unsent() {
			select {
			case slots <- struct{}{}:
			case err := <-failed:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
			begin(func(ctx context.Context) error { return p.send(ctx, report) }, func() { <-slots })
		}
		timer.Reset(time.Until(due))
		select {
		case <-holdings.wake:
		case <-timer.C:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// beat sends one heartbeat.
func (p *polls) beat(ctx context.Context) error {
	holdings := p.links.worker.holdings
	ctx, cancel := context.WithTimeout(ctx, workerCallTimeout)
	defer cancel()
	response, err := p.stub.Heartbeat(ctx, holdings.heartbeat(p.session.id))
	if err != nil {
		if codeOf(err) == codes.InvalidArgument {
			holdings.dropProgress()
		}
		return err
	}
	holdings.heard(response.Stop, p.links.worker.stopTask)
	if !response.Draining {
		p.links.works(ModePoll)
	}
	return nil
}

// send sends one report as a call of its own.
func (p *polls) send(ctx context.Context, report *workerv1.Report) error {
	worker, token := p.links.worker, report.TaskToken
	outcome, err := p.call(ctx, report)
	if err == nil {
		worker.heardFrom()
		worker.takeOutcomes([]*workerv1.ReportResult{{TaskToken: token, Outcome: outcome}})
		return nil
	}
	failed := ErrorFrom(err)
	switch failed.Code {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		// The same call would be refused again.
		reason := failed.Reason
		if reason == "" {
			reason = codeName(failed.Code)
		}
		worker.refusedReport(token, &workerv1.ReportError{Reason: reason, Message: failed.Message})
		return nil
	case codes.Unavailable, codes.ResourceExhausted:
		if failed.Reason != "" {
			// The server itself says so: the connection works.
			worker.refusedReport(token, &workerv1.ReportError{Retryable: true, RetryAfter: durationpb.New(max(failed.RetryAfter, 100*time.Millisecond))})
			return nil
		}
	}
	return err
}

// call makes the call of a report's kind.
func (p *polls) call(ctx context.Context, report *workerv1.Report) (*workerv1.ReportOutcome, error) {
	ctx, cancel := context.WithTimeout(ctx, workerCallTimeout)
	defer cancel()
	switch kind := report.Kind.(type) {
	case *workerv1.Report_Complete:
		response, err := p.stub.CompleteTask(ctx, &workerv1.CompleteTaskRequest{TaskToken: report.TaskToken, Output: kind.Complete.Output})
		return response.GetOutcome(), err
	case *workerv1.Report_Fail:
		response, err := p.stub.FailTask(ctx, &workerv1.FailTaskRequest{TaskToken: report.TaskToken, Failure: kind.Fail.Failure,
			Retryable: kind.Fail.Retryable, RetryAfter: kind.Fail.RetryAfter})
		return response.GetOutcome(), err
	default:
		response, err := p.stub.ReleaseTask(ctx, &workerv1.ReleaseTaskRequest{TaskToken: report.TaskToken})
		return response.GetOutcome(), err
	}
}
