package orbit

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	workerv1 "orbit.example/sdk/go/gen/orbit/worker/v1"
)

// beatPause is the shortest pause between two heartbeats, however many handlers beat.
const beatPause = 100 * time.Millisecond

// errDry ends a stream in favour of one without credits, when a worker that drains has something to give back. Credits
// cannot be taken back, so it would come again against those of the old stream, until its deliveries are used up.
var errDry = errors.New("the worker drains")

// A stream is one connection of the fast path: tasks, reports and heartbeats in frames, many in each.
type stream struct {
	links   *links
	session session
	call    workerv1.WorkerService_StreamTasksClient

	// isTry: polls have stood in for streams until now.
	isTry bool
	// heard is whether the server has said anything.
	heard atomic.Bool
	// expected counts the tasks that were asked for and have not come yet.
	expected atomic.Int64
	// draining: the server stops, and wants no more credits.
	draining atomic.Bool
	// beating: a heartbeat is not answered. There is one at a time, so that an answer is known to be to the last one.
	beating atomic.Bool
	// contact is when the server was last heard of, by the nanoseconds since began.
	contact atomic.Int64
	began   time.Time

	// dry: the worker drained already when the stream was opened.
	dry      bool
	first    bool
	beatTime time.Time
}

// run works over one stream until it ends: nil if the server ended it in order.
func (s *stream) run(parent context.Context, stub workerv1.WorkerServiceClient) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	holdings := s.links.worker.holdings
	call, err := stub.StreamTasks(ctx)
	if err != nil {
		return err
	}
	s.call, s.began, s.first, s.dry = call, time.Now(), true, s.links.worker.isDraining()
	var parts sync.WaitGroup
	var read error
	ended := make(chan struct{})
	parts.Add(2)
	go func() {
		defer parts.Done()
		defer close(ended)
		read = s.read()
	}()
	go func() {
		defer parts.Done()
		s.watch(ctx, cancel)
	}()
	written := s.write(ctx, ended)
	silent := errors.Is(context.Cause(ctx), errSilence)
	cancel(nil)
	parts.Wait()
	holdings.connectionLost()

	switch {
	case silent:
		return errSilence
	case errors.Is(written, errDry):
		return nil
	case errors.Is(read, io.EOF):
		return nil
	case codeOf(read) == codes.InvalidArgument:
		// The server told what it is in its answer; only progress is ours to choose.
		holdings.dropProgress()
	case written != nil && !errors.Is(written, io.EOF):
		return written
	}
	return read
}

// write sends what there is to say until the stream has ended. Why it did is the reader's to tell, but for what could not
// even be sent.
func (s *stream) write(ctx context.Context, ended <-chan struct{}) error {
	wake := s.links.worker.holdings.wake
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		// Handlers that are about to end get their turn first, so that their reports leave together.
		runtime.Gosched()
		if !s.dry && s.links.worker.holdings.isGivingBack() {
			return errDry
		}
		frame, next := s.frame()
		if frame != nil {
			if err := s.call.Send(frame); err != nil {
				return err
			}
		}
		timer.Reset(time.Until(next))
		select {
		case <-wake:
		case <-timer.C:
		case <-ended:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// frame makes the next frame, nil if there is nothing to say, and tells when there will be at the latest.
func (s *stream) frame() (*workerv1.StreamTasksRequest, time.Time) {
	holdings := s.links.worker.holdings
	frame := &workerv1.StreamTasksRequest{Reports: holdings.unsent()}
	empty := len(frame.Reports) == 0

	if !s.draining.Load() {
		expected := int(s.expected.Load())
		// In bulk: a credit alone is not worth a frame while others are out.
		if credits := holdings.free() - expected; credits > 0 && (!empty || expected == 0 || credits*4 >= holdings.slots) {
			s.expected.Add(int64(credits))
			frame.Credits = int32(credits)
			empty = false
		}
	}

	now := time.Now()
	regular := s.beatTime.Add(s.session.interval)
	due := later(holdings.beatDue(regular), s.beatTime.Add(beatPause))
	if s.beating.Load() {
		// The answer wakes this; one that does not come is not waited for.
		due = regular
	}
	if !now.Before(due) {
		frame.Heartbeat = holdings.heartbeat("")
		s.beatTime = now
		s.beating.Store(true)
		due = now.Add(s.session.interval)
		empty = false
	}
	if s.first {
		frame.SessionId, s.first = s.session.id, false
		empty = false
	}
	if empty {
		return nil, due
	}
	return frame, due
}

// read takes what the server says until the stream ends.
func (s *stream) read() error {
	worker := s.links.worker
	for {
		frame, err := s.call.Recv()
		if err != nil {
			return err
		}
		s.contact.Store(int64(time.Since(s.began)))
		isFirst := !s.heard.Swap(true)
		worker.holdings.accept(frame.Tasks)
		s.expected.Add(-int64(len(frame.Tasks)))
		if len(frame.Results) > 0 {
			worker.takeOutcomes(frame.Results)
		}
		if frame.Heartbeat != nil {
			s.beating.Store(false)
			worker.holdings.heard(frame.Heartbeat.Stop, worker.stopTask)
		}
		if frame.Draining || frame.Heartbeat.GetDraining() {
			s.draining.Store(true)
		}
		if !s.draining.Load() {
			s.links.works(ModeStream)
		}
		if isFirst && s.isTry {
			worker.log.Info("orbit: streams get through again", "address", worker.client.Address())
		}
		if len(frame.Results) > 0 || frame.Heartbeat != nil {
			worker.holdings.signal()
		}
	}
}

// watch cancels the stream once the server has been silent for longer than a session lasts: every heartbeat is answered,
// so the other side is gone, or frozen. Without a first word it waits only half as long, since something on the way may
// hold streams back: polls then take over while the session still lives.
func (s *stream) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	period := min(time.Second, s.session.timeout/4)
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	last, silence := time.Now(), time.Duration(0)
	heard := s.contact.Load()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		if contact := s.contact.Load(); contact != heard {
			heard, silence = contact, 0
		} else {
			// A gap is this process's own: it was stopped, and the server may have answered all along.
			silence += min(now.Sub(last), 2*period)
		}
		last = now
		patience := s.session.timeout
		if !s.heard.Load() {
			patience = min(workerCallTimeout, patience/2)
		}
		if silence >= patience {
			cancel(errSilence)
			return
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
