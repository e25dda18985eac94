package orbit

import (
	"encoding/json"
	"net/http"
	"time"
)

// WorkerState is where a worker is in its life.
type WorkerState string

const (
	// WorkerConnecting: it has not reached the server yet.
	WorkerConnecting WorkerState = "connecting"
	// WorkerConnected: it works.
	WorkerConnected WorkerState = "connected"
	// WorkerDisconnected: it lost the server and tries again.
	WorkerDisconnected WorkerState = "disconnected"
	// WorkerDraining: it stops.
	WorkerDraining WorkerState = "draining"
	// WorkerStopped: Run has returned, or is about to.
	WorkerStopped WorkerState = "stopped"
)

// Status is how a worker is doing.
type Status struct {
	// State is where it is in its life; empty before Run.
	State WorkerState
	// Mode is [ModeStream] or [ModePoll], as it last worked; empty before the first connection.
	Mode Mode
	// SessionID is the registration at the server; empty before the first.
	SessionID string
	// Slots is how many tasks it may hold.
	Slots int
	// Held is how many it holds, from receipt until the report is answered.
	Held int
	// Running is how many handlers run.
	Running int
	// LastContact is when the server last answered; zero if never.
	LastContact time.Time
	// IsHealthy tells whether the worker can get work: it has not stopped, and the server answered within a session
	// timeout. An outage makes it false, and its end true again by itself, so it says "ready" and not "alive".
	IsHealthy bool
}

// Status tells how the worker is doing now.
func (w *Worker) Status() Status {
	w.mu.Lock()
	status := Status{State: w.state, Mode: w.mode, Slots: w.config.slots}
	w.mu.Unlock()
	status.Held, status.Running = w.holdings.count()
	if id := w.sessionID.Load(); id != nil {
		status.SessionID = *id
	}
	if contact := w.lastContact.Load(); contact > 0 {
		status.LastContact = w.started.Add(time.Duration(contact - 1))
		silence := time.Since(status.LastContact)
		status.IsHealthy = silence <= time.Duration(w.sessionSpan.Load()) &&
			(status.State == WorkerConnected || status.State == WorkerDraining)
	}
	return status
}

// HealthHandler answers with 200 while the worker is healthy ([Status.IsHealthy]) and 503 otherwise, and with the status
// as JSON: for a readiness probe.
func (w *Worker) HealthHandler() http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		status := w.Status()
		body := map[string]any{
			"state": status.State, "mode": status.Mode, "session_id": status.SessionID, "slots": status.Slots,
			"held": status.Held, "running": status.Running, "healthy": status.IsHealthy, "last_contact_seconds": nil,
		}
		if !status.LastContact.IsZero() {
			body["last_contact_seconds"] = time.Since(status.LastContact).Seconds()
		}
		response.Header().Set("content-type", "application/json")
		if !status.IsHealthy {
			response.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(response).Encode(body)
	})
}

// setState changes the state, unless that would go back from an end, and tells the listener. It returns whether anything
// changed.
func (w *Worker) setState(state WorkerState, mode Mode) bool {
	w.telling.Lock()
	defer w.telling.Unlock()
	w.mu.Lock()
	if mode != "" {
		w.mode = mode
	}
	ending := w.state == WorkerStopped || (w.state == WorkerDraining && state != WorkerStopped)
	// A first connection that fails leaves the worker connecting.
	waiting := w.state == WorkerConnecting && state == WorkerDisconnected
	if w.state == state || ending || waiting {
		w.mu.Unlock()
		return false
	}
	w.state = state
	w.mu.Unlock()
	if w.config.listener != nil {
		w.config.listener(w.Status())
	}
	return true
}
