package orbit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	mathrand "math/rand/v2"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// Pauses between the tries of a call.
const (
	callPauseFirst   = 100 * time.Millisecond
	callPauseLongest = 2 * time.Second
)

func getenv(name string) string { return os.Getenv(name) }

// invoke makes a unary call, again and again while the server is away, until the deadline.
func invoke[Request, Response any](
	ctx context.Context, c *Client, request *Request,
	method func(context.Context, *Request, ...grpc.CallOption) (*Response, error),
) (*Response, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.config.callTimeout)
		defer cancel()
	}
	ctx = withTrace(ctx)
	pauses := backoffPauses{first: callPauseFirst, longest: callPauseLongest}
	var last *Error
	for {
		response, err := method(ctx, request)
		if err == nil {
			return response, nil
		}
		failed := ErrorFrom(err)
		if ctx.Err() != nil && last != nil && failed.Code == codes.DeadlineExceeded {
			return nil, gaveUp(last)
		}
		if !mayPass(ctx, failed) {
			return nil, failed
		}
		last = failed
		if pause(ctx, max(pauses.next(), failed.RetryAfter)) != nil {
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, &Error{Code: codes.Canceled, Message: "the call was cancelled", cause: last}
			}
			return nil, gaveUp(last)
		}
	}
}

// mayPass tells whether the same call may succeed later. A CANCELLED that the caller did not cause is a lost connection.
func mayPass(ctx context.Context, err *Error) bool {
	return err.Code == codes.Unavailable || (err.Code == codes.Canceled && ctx.Err() == nil)
}

// pause waits; it returns the context's error if that ends first.
func pause(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// backoffPauses gives pauses that grow and are random, so that many clients do not come back in step.
type backoffPauses struct {
	first, longest time.Duration
	limit          time.Duration
}

// next gives the next pause: anything from a tenth of the limit, which doubles each time, to the limit.
func (b *backoffPauses) next() time.Duration {
	if b.limit == 0 {
		b.limit = b.first
	}
	limit := b.limit
	b.limit = min(b.longest, limit*2)
	return limit/10 + mathrand.N(limit-limit/10+1)
}

// reset begins with the first pause again.
func (b *backoffPauses) reset() { b.limit = 0 }

// newID makes a random UUID (version 4).
func newID() string {
	var id [16]byte
	rand.Read(id[:]) // It never fails: the runtime ends the program instead.
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	var text [36]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}

// withTrace hands on the trace of the task in whose handler a call is made, unless the caller set one itself.
func withTrace(ctx context.Context) context.Context {
	task, ok := ctx.Value(taskKey{}).(*TaskContext)
	if !ok || task.TraceParent() == "" {
		return ctx
	}
	if sent, ok := metadata.FromOutgoingContext(ctx); ok && len(sent.Get("traceparent")) > 0 {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "traceparent", task.TraceParent())
}
