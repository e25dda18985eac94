package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	orbit "orbit.example/sdk/go"
)

// A running is the worker, while it runs.
type running struct {
	worker *orbit.Worker
	stop   context.CancelFunc
	done   chan struct{}
}

func (d *driver) startWorker(_ context.Context, c command) (object, error) {
	args := read[struct {
		Contracts    map[string]string `json:"contracts"`
		Queues       []string          `json:"queues"`
		Slots        *int              `json:"slots"`
		Mode         string            `json:"mode"`
		DrainSeconds *float64          `json:"drain_seconds"`
		WorkerID     string            `json:"worker_id"`
		StreamRetry  *float64          `json:"stream_retry_seconds"`
	}](c)
	client, err := d.theClient()
	if err != nil {
		return nil, err
	}
	slots := 4
	if args.Slots != nil {
		slots = *args.Slots
	}
	options := []orbit.WorkerOption{orbit.WithSlots(slots), orbit.WithStateListener(d.told)}
	if len(args.Queues) > 0 {
		options = append(options, orbit.WithQueues(args.Queues...))
	}
	if args.Mode != "" {
		options = append(options, orbit.WithMode(orbit.Mode(args.Mode)))
	}
	if args.DrainSeconds != nil {
		options = append(options, orbit.WithDrainTimeout(span(*args.DrainSeconds)))
	}
	if args.StreamRetry != nil {
		options = append(options, orbit.WithStreamRetry(span(*args.StreamRetry)))
	}
	if args.WorkerID != "" {
		options = append(options, orbit.WithWorkerID(args.WorkerID))
	}
	worker := orbit.NewWorker(client, options...)
	for contract, name := range args.Contracts {
		d.handleBy(worker, contract, name)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{worker: worker, stop: stop, done: make(chan struct{})}
	d.mu.Lock()
	d.worker = r
	d.mu.Unlock()
	go func() {
		var told any
		if err := worker.Run(ctx); err != nil {
			told = errorObject(err)
		}
		d.tell(object{"event": "returned", "error": told})
		close(r.done)
	}()
	return nil, nil
}

// told is the worker's listener.
func (d *driver) told(status orbit.Status) {
	line := object{"event": "state", "state": status.State}
	if status.State == orbit.WorkerConnected {
		line["mode"] = status.Mode
	}
	d.tell(line)
}

// stopWorker stops the worker, if there is one, and waits for its return.
func (d *driver) stopWorker() {
	d.mu.Lock()
	r := d.worker
	d.mu.Unlock()
	if r == nil {
		return
	}
	r.stop()
	<-r.done
}

func (d *driver) stop(context.Context, command) (object, error) {
	began := time.Now()
	d.stopWorker()
	return object{"seconds": time.Since(began).Seconds()}, nil
}

func (d *driver) status(context.Context, command) (object, error) {
	d.mu.Lock()
	r := d.worker
	d.mu.Unlock()
	if r == nil {
		return nil, fmt.Errorf("no worker was started")
	}
	status := r.worker.Status()
	reply := object{"state": status.State, "held": status.Held, "healthy": status.IsHealthy, "mode": nil, "last_contact_seconds": nil}
	if status.Mode != "" {
		reply["mode"] = status.Mode
	}
	if !status.LastContact.IsZero() {
		reply["last_contact_seconds"] = time.Since(status.LastContact).Seconds()
	}
	return reply, nil
}

// logger is the SDK's logger: each record becomes an event.
func (d *driver) logger() *slog.Logger { return slog.New(&recorder{driver: d, fields: &fields{}}) }

// fields are attributes that a logger adds to each record.
type fields struct {
	parent *fields
	attrs  []slog.Attr
}

// recorder tells log records as events.
type recorder struct {
	driver *driver
	fields *fields
}

func (r *recorder) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (r *recorder) Handle(_ context.Context, record slog.Record) error {
	values := map[string]string{}
	for at := r.fields; at != nil; at = at.parent {
		for _, attr := range at.attrs {
			values[attr.Key] = attr.Value.String()
		}
	}
	record.Attrs(func(attr slog.Attr) bool {
		values[attr.Key] = attr.Value.String()
		return true
	})
	level := strings.ToLower(record.Level.String())
	if level == "warn" {
		level = "warning"
	}
	r.driver.tell(object{"event": "log", "level": level, "message": record.Message, "fields": values})
	return nil
}

func (r *recorder) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &recorder{driver: r.driver, fields: &fields{parent: r.fields, attrs: attrs}}
}

func (r *recorder) WithGroup(string) slog.Handler { return r }

// gates let handlers go.
type gates struct {
	mu    sync.Mutex
	gates map[string]chan struct{}
}

// gate gives the channel of a gate, which is closed once it is open.
func (g *gates) gate(name string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gates == nil {
		g.gates = map[string]chan struct{}{}
	}
	if g.gates[name] == nil {
		g.gates[name] = make(chan struct{})
	}
	return g.gates[name]
}

func (d *driver) openGate(_ context.Context, c command) (object, error) {
	args := read[struct {
		Gate string `json:"gate"`
	}](c)
	gate := d.gates.gate(args.Gate)
	d.gates.mu.Lock()
	defer d.gates.mu.Unlock()
	select {
	case <-gate:
	default:
		close(gate)
	}
	return nil, nil
}

// counters count by idempotency key.
type counters struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *counters) add(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[key]++
	return c.counts[key]
}
