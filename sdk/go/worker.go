package orbit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of a worker.
const (
	// DefaultSlots is how many tasks a worker does at once unless [WithSlots] says otherwise.
	DefaultSlots = 100
	// DefaultDrainTimeout is how long a worker that stops lets its handlers go on unless [WithDrainTimeout] says otherwise.
	DefaultDrainTimeout = 30 * time.Second
	// DefaultStreamRetry is how long polls stand in for streams unless [WithStreamRetry] says otherwise.
	DefaultStreamRetry = time.Minute
)

// stopGrace is how long handlers whose context has ended, and their last reports, may take.
const stopGrace = 5 * time.Second

// Mode is how a worker fetches tasks.
type Mode string

const (
	// ModeAuto streams, and polls for a while where streams do not get through.
	ModeAuto Mode = "auto"
	// ModeStream only streams.
	ModeStream Mode = "stream"
	// ModePoll only makes plain calls, which pass where streams are cut, and cost more.
	ModePoll Mode = "poll"
)

// workerConfig is what options say about a worker.
type workerConfig struct {
	id           string
	build        string
	queues       []string
	slots        int
	drain        time.Duration
	mode         Mode
	streamRetry  time.Duration
	interceptors []Interceptor
	listener     func(Status)
	logger       *slog.Logger
}

// A WorkerOption changes one setting of a [Worker].
type WorkerOption func(*workerConfig)

// WithWorkerID names the worker for people. Two processes may share a name. Default: the host's.
func WithWorkerID(id string) WorkerOption { return func(c *workerConfig) { c.id = id } }

// WithBuild names the worker's build for people. Default: the version of the main module, where Go knows it.
func WithBuild(build string) WorkerOption { return func(c *workerConfig) { c.build = build } }

// WithQueues names the queues that the worker serves. Default: the queue "default".
func WithQueues(queues ...string) WorkerOption { return func(c *workerConfig) { c.queues = queues } }

// WithSlots limits how many tasks the worker does at once, 1 to 10,000. A task takes its slot until the server has its
// report. Default: [DefaultSlots].
func WithSlots(slots int) WorkerOption { return func(c *workerConfig) { c.slots = slots } }

// WithDrainTimeout sets how long a worker that stops lets its handlers go on. 0 ends their contexts at once. Default:
// [DefaultDrainTimeout].
func WithDrainTimeout(timeout time.Duration) WorkerOption {
	return func(c *workerConfig) { c.drain = timeout }
}

// WithMode chooses how tasks are fetched. Default: [ModeAuto].
func WithMode(mode Mode) WorkerOption { return func(c *workerConfig) { c.mode = mode } }

// WithStreamRetry sets how long a worker in [ModeAuto] polls, where streams do not get through, before it tries a stream
// again. Nobody notices a try that fails. Default: [DefaultStreamRetry].
func WithStreamRetry(pause time.Duration) WorkerOption {
	return func(c *workerConfig) { c.streamRetry = pause }
}

// WithInterceptors wraps every handler, the first one outermost. Repeated, it adds further ones inside.
func WithInterceptors(interceptors ...Interceptor) WorkerOption {
	return func(c *workerConfig) { c.interceptors = append(c.interceptors, interceptors...) }
}

// WithStateListener calls a function at each change of the worker's [WorkerState], one call after another. It must return soon.
func WithStateListener(listener func(Status)) WorkerOption {
	return func(c *workerConfig) { c.listener = listener }
}

// WithWorkerLogger sets where the worker and its handlers' loggers write. Default: that of the client.
func WithWorkerLogger(logger *slog.Logger) WorkerOption {
	return func(c *workerConfig) { c.logger = logger }
}

// A Worker fetches tasks, runs their handlers and reports, through every outage, until it is told to stop.
//
//   - It connects again for ever, with growing random pauses of at most 10 s, and logs one line for each change.
//   - Its heartbeats list every task that it holds, from receipt until the report is answered.
//   - A result that is finished during an outage is delivered when the outage ends.
//   - A handler that panics fails its attempt; the worker lives on.
//
// Give it its handlers by [Handle], then [Worker.Run] it, once.
type Worker struct {
	client   *Client
	config   workerConfig
	log      *slog.Logger
	handlers map[string]TaskHandler
	faults   []error
	holdings *holdings
	// Closed when the worker begins to drain.
	draining chan struct{}
	// Whose values the handlers' contexts have, and nothing else of it.
	base context.Context
	// lastContact is when the server last answered, by the nanoseconds since started.
	lastContact atomic.Int64
	started     time.Time
	sessionID   atomic.Pointer[string]
	sessionSpan atomic.Int64

	// mu guards the state; telling is held while the listener is told.
	mu      sync.Mutex
	telling sync.Mutex
	state   WorkerState
	mode    Mode
}

// NewWorker makes a worker of a client's server. It has a connection of its own.
func NewWorker(client *Client, options ...WorkerOption) *Worker {
	w := &Worker{client: client, handlers: map[string]TaskHandler{}, draining: make(chan struct{}), started: time.Now()}
	w.config = workerConfig{queues: []string{"default"}, slots: DefaultSlots, drain: DefaultDrainTimeout, mode: ModeAuto,
		streamRetry: DefaultStreamRetry, build: mainVersion(), logger: client.logger()}
	w.config.id, _ = os.Hostname()
	for _, option := range options {
		option(&w.config)
	}
	if w.config.id == "" {
		w.config.id = "go"
	}
	if w.config.slots < 1 || w.config.slots > 10_000 {
		w.faults = append(w.faults, fmt.Errorf("orbit: %d slots; a worker has 1 to 10000", w.config.slots))
	}
	w.log = w.config.logger
	w.holdings = newHoldings(w.config.slots)
	w.holdings.prepare, w.holdings.start = w.prepare, func(one *held) { go w.handle(one) }
	return w
}

// mainVersion gives the version of the program, if it was built with one.
func mainVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "(devel)" {
		return ""
	}
	return info.Main.Version
}

// Run works until ctx ends, then stops in order and returns nil:
//
//  1. It takes no more tasks; what still comes goes back unstarted.
//  2. Handlers learn that it drains ([TaskContext.Draining]), and may go on.
//  3. After the drain time their contexts end, with [ErrWorkerStopped].
//  4. Within 5 s more, what they return is reported, what they gave up or do not give up is given back, and Run returns.
//
// That time is a bound also when the server is gone; the server then hands the tasks out again by itself. The last line of
// the log tells how many tasks were reported, given back (released) and neither (unreported) since it began to stop. Run
// returns an error only if the worker was set up wrongly, or if the server refuses its first registration as such:
// [ErrInvalidArgument], [ErrUnauthenticated] or [ErrPermissionDenied].
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	fault := w.fault()
	if w.state != "" {
		fault = errors.New("orbit: a worker runs once; make another one")
	}
	if fault != nil {
		w.mu.Unlock()
		return fault
	}
	for contract, handler := range w.handlers {
		w.handlers[contract] = chain(handler, w.config.interceptors)
	}
	w.base = context.WithoutCancel(ctx)
	w.mu.Unlock()
	w.setState(WorkerConnecting, "")
	defer w.setState(WorkerStopped, "")

	// The connection outlives ctx: it delivers the last reports.
	connected, disconnect := context.WithCancel(w.base)
	refused := make(chan error, 1)
	links := &links{worker: w}
	go func() { refused <- links.keep(connected) }()

	select {
	case err := <-refused:
		disconnect()
		links.close()
		return err
	case <-ctx.Done():
	}
	began := time.Now()
	end := w.drain()
	disconnect()
	<-refused
	links.unregister(end)
	links.close()
	reported, released, unreported := w.holdings.farewell()
	w.log.Info("orbit: stopped", "reported", reported, "released", released, "unreported", unreported,
		"seconds", math.Round(time.Since(began).Seconds()*10)/10)
	return nil
}

// drain ends the work in order; what it returns is when Run must return at the latest.
func (w *Worker) drain() time.Time {
	w.holdings.takeNoMore()
	w.setState(WorkerDraining, "")
	close(w.draining)
	held, running := w.holdings.count()
	w.log.Info("orbit: stopping; no new tasks are taken", "running", running, "unreported", held-running,
		"drain_timeout", w.config.drain.String())

	drained := time.Now().Add(max(0, w.config.drain))
	idle := func(held, _ int) bool { return held == 0 }
	if w.holdings.wait(drained, idle) {
		return time.Now().Add(stopGrace)
	}
	end := drained.Add(stopGrace)
	if _, running := w.holdings.count(); running > 0 {
		w.holdings.stopAll(ErrWorkerStopped)
		// The last two seconds are for giving back what does not end.
		ended := func(held, running int) bool { return held == 0 || running == 0 }
		if !w.holdings.wait(end.Add(-2*time.Second), ended) {
			for _, one := range w.holdings.releaseRunning() {
				w.log.Warn("orbit: a handler does not end; its task is given back", taskAttributes(one.task)...)
			}
		}
		w.holdings.wait(end.Add(-time.Second), idle)
	}
	for _, one := range w.holdings.list() {
		w.log.Warn("orbit: not reported; the server will hand it out again", taskAttributes(one.task)...)
	}
	return end
}

// isDraining tells whether the worker has begun to stop.
func (w *Worker) isDraining() bool {
	select {
	case <-w.draining:
		return true
	default:
		return false
	}
}
