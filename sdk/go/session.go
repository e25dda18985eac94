package orbit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	workerv1 "orbit.example/sdk/go/gen/orbit/worker/v1"
)

const (
	// workerCallTimeout bounds a worker's own calls. Each of them can be repeated without harm.
	workerCallTimeout = 10 * time.Second
	// reconnectLongest is the longest pause between attempts to connect.
	reconnectLongest = 10 * time.Second
	// streamFailuresMax is how many streams in a row may fail at once before the worker polls.
	streamFailuresMax = 3
	// workerMessageBytesMax is the largest message that the server may send; a larger input fails its step.
	workerMessageBytesMax = 16 << 20
)

// refusals of the first registration are what no patience can mend.
var refusals = []codes.Code{codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied}

// errSilence: the server has been silent for longer than a session lasts.
var errSilence = errors.New("the server does not answer heartbeats")

// errSwitch ends polling, since it is time to try a stream again.
var errSwitch = errors.New("time to try a stream")

// A session is a registration, as the server gave it.
type session struct {
	id       string
	interval time.Duration
	timeout  time.Duration
}

// links are a worker's connections, one after another, until it stops.
type links struct {
	worker *Worker

	// mu guards conn, said and pauses: polls and their heartbeats are heard side by side.
	mu   sync.Mutex
	conn *grpc.ClientConn
	// said is whether the present outage was logged.
	said   bool
	pauses backoffPauses

	// polling is until when plain calls are made although a stream is wanted.
	polling time.Time
	// streamFailures counts the streams in a row that failed at once.
	streamFailures int
}

// stub gives the service over the present connection, a new one if there is none.
func (l *links) stub() (workerv1.WorkerServiceClient, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		conn, err := l.worker.client.dial()
		if err != nil {
			return nil, err
		}
		l.conn = conn
	}
	l.conn.ResetConnectBackoff()
	return workerv1.NewWorkerServiceClient(l.conn), nil
}

// close gives the connection up. One that is silent may stay so for long, while a new one gets through.
func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}

// keep registers and works, again and again, until ctx ends. It returns an error only if the server refuses the
// registration as such.
func (l *links) keep(ctx context.Context) error {
	l.pauses = backoffPauses{first: 100 * time.Millisecond, longest: reconnectLongest}
	for ctx.Err() == nil {
		err := l.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if refusal := (*refusedRegistration)(nil); errors.As(err, &refusal) {
			return fmt.Errorf("orbit: the server refuses this worker: %w", refusal.err)
		}
		l.lost(err)
		if errors.Is(err, errSilence) || codeOf(err) == codes.DeadlineExceeded {
			l.close()
		}
		_ = pause(ctx, l.nextPause())
	}
	return nil
}

// serve registers and works until the connection is lost.
func (l *links) serve(ctx context.Context) error {
	stub, err := l.stub()
	if err != nil {
		return err
	}
	session, err := l.register(ctx, stub)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		// The server ends streams in order now and then; the session stays.
		if err := l.work(ctx, stub, session); err != nil {
			return err
		}
		_ = pause(ctx, l.nextPause())
	}
	return nil
}

// work fetches tasks over one stream, or by plain calls, until that ends.
func (l *links) work(ctx context.Context, stub workerv1.WorkerServiceClient, session session) error {
	mode := l.worker.config.mode
	// A worker that stops tries nothing new.
	ends := !l.polling.IsZero() && l.worker.isDraining()
	if mode == ModePoll || ends || time.Now().Before(l.polling) {
		var until time.Time
		if mode == ModeAuto && !ends {
			until = l.polling
		}
		err := (&polls{links: l, stub: stub, session: session, until: until}).run(ctx)
		if errors.Is(err, errSwitch) {
			return nil
		}
		return err
	}
	s := &stream{links: l, session: session, isTry: !l.polling.IsZero()}
	err := s.run(ctx, stub)
	if s.heard.Load() {
		l.streamFailures, l.polling = 0, time.Time{}
		return err
	}
	if ctx.Err() != nil || mode == ModeStream || l.worker.isDraining() {
		return err
	}
	l.streamFailures++
	if codeOf(err) == codes.Unimplemented {
		l.streamFailures = max(l.streamFailures, streamFailuresMax)
	}
	if l.streamFailures < streamFailuresMax {
		return err
	}
	if l.polling.IsZero() {
		l.worker.log.Warn("orbit: streams do not get through; polling instead", "error", err)
	}
	l.polling = time.Now().Add(l.worker.config.streamRetry)
	return nil
}

// register makes a session, or gets the last one back.
func (l *links) register(ctx context.Context, stub workerv1.WorkerServiceClient) (session, error) {
	w := l.worker
	contracts := make([]string, 0, len(w.handlers))
	for contract := range w.handlers {
		contracts = append(contracts, contract)
	}
	slices.Sort(contracts)
	request := &workerv1.RegisterWorkerRequest{
		WorkerId: w.config.id, Language: "go", Sdk: "orbit-go/" + Version, Build: w.config.build,
		Queues: w.config.queues, Contracts: contracts, Slots: int32(w.config.slots),
		MessageBytesMax: workerMessageBytesMax,
	}
	previous := w.sessionID.Load()
	if previous != nil {
		request.PreviousSessionId = *previous
	}
	callCtx, cancel := context.WithTimeout(ctx, workerCallTimeout)
	defer cancel()
	response, err := stub.RegisterWorker(callCtx, request)
	if err != nil {
		// What is wrong with a registration that was good once will be good again: for example after a downgrade.
		if failed := ErrorFrom(err); previous == nil && slices.Contains(refusals, failed.Code) {
			return session{}, &refusedRegistration{failed}
		}
		return session{}, err
	}
	for _, warning := range response.Warnings {
		w.log.Warn("orbit: the server warns", "warning", warning)
	}
	w.sessionID.Store(&response.SessionId)
	w.sessionSpan.Store(int64(response.SessionTimeout.AsDuration()))
	made := session{id: response.SessionId, interval: response.HeartbeatInterval.AsDuration(), timeout: response.SessionTimeout.AsDuration()}
	if made.interval <= 0 || made.timeout <= 0 {
		return session{}, errors.New("the server's answer to the registration has no heartbeat interval or session timeout")
	}
	w.holdings.setInterval(made.interval)
	return made, nil
}

// refusedRegistration is the error of a worker that the server will never take.
type refusedRegistration struct{ err *Error }

func (r *refusedRegistration) Error() string { return r.err.Error() }

// unregister ends the session, so that what was not reported is handed out again at once; at the latest at end.
func (l *links) unregister(end time.Time) {
	id := l.worker.sessionID.Load()
	if id == nil {
		return
	}
	stub, err := l.stub()
	if err == nil {
		ctx, cancel := context.WithDeadline(l.worker.base, earlier(end, time.Now().Add(2*time.Second)))
		defer cancel()
		_, err = stub.UnregisterWorker(ctx, &workerv1.UnregisterWorkerRequest{SessionId: *id})
	}
	if err != nil {
		l.worker.log.Warn("orbit: could not unregister; the server finds out by itself", "error", ErrorFrom(err).Message)
	}
}

// nextPause is the pause before the next attempt to connect.
func (l *links) nextPause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pauses.next()
}

// works says that the server was heard of, and that it works, the first time after an outage.
func (l *links) works(mode Mode) {
	l.worker.heardFrom()
	changed := l.worker.setState(WorkerConnected, mode)
	l.mu.Lock()
	l.pauses.reset()
	l.said = l.said && !changed
	l.mu.Unlock()
	if changed {
		l.worker.log.Info("orbit: connected", "address", l.worker.client.Address(), "mode", string(mode), "session", *l.worker.sessionID.Load())
	}
}

// lost says that the server is away, once for each outage.
func (l *links) lost(err error) {
	changed := l.worker.setState(WorkerDisconnected, "")
	l.mu.Lock()
	said := l.said && !changed
	l.said = true
	l.mu.Unlock()
	if !said {
		l.worker.log.Warn("orbit: no connection to the server; trying again until there is one",
			"address", l.worker.client.Address(), "error", ErrorFrom(err).Message)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
