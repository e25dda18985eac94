package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	workerv1 "orbit.example/sdk/go/gen/orbit/worker/v1"
	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
)

func TestValuesKeepTheirTextAndEveryDigit(t *testing.T) {
	for _, text := range []string{
		`null`, `{}`, `"<a & b>"`, `9223372036854775807`, `123456789012345678901234567890`, `1.10`, `"å日本\ud83d\ude00"`,
	} {
		var value any
		if err := decodePayload(textPayload(text), &value); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		again, err := encodePayload(value)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var raw json.RawMessage
		if err := decodePayload(textPayload(text), &raw); err != nil || string(raw) != text {
			t.Errorf("raw %s became %s", text, raw)
		}
		if want := strings.ReplaceAll(text, `\ud83d\ude00`, "😀"); again.GetJson() != want {
			t.Errorf("%s became %s", text, again.GetJson())
		}
	}
	var exact struct{ N int64 }
	if err := decodePayload(textPayload(`{"N":9007199254740993}`), &exact); err != nil || exact.N != 9007199254740993 {
		t.Errorf("%d, %v", exact.N, err)
	}
}

func TestBothFormsOfAPayloadAreReadAndNoOther(t *testing.T) {
	value, err := structpb.NewValue(map[string]any{"a": []any{1.0, nil, "x"}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := decodePayload(&workflowv1.Payload{Content: &workflowv1.Payload_Value{Value: value}}, &got); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != "map[a:[1 <nil> x]]" {
		t.Errorf("%v", got)
	}
	if _, err := payloadText(&workflowv1.Payload{}); !errors.Is(err, errPayloadUnknown) {
		t.Errorf("a payload without content: %v", err)
	}
}

func TestWhatNoStoreKeepsIsKnownBeforeItIsSent(t *testing.T) {
	for text, want := range map[string]bool{
		`"plain å"`: true, `"\\u0000"`: true, `"\n\"\u0001"`: true, `"\ud83d\ude00"`: true,
		`"\u0000"`: false, `"a\\\u0000"`: false, `"\ud83d"`: false, `"\ude00\ud83d"`: false, `"\ud83dx"`: false,
	} {
		if got := isStorable(text); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestAnErrorHasWhatTheServerSaid(t *testing.T) {
	said, err := status.New(codes.InvalidArgument, "the input does not fit").WithDetails(
		&errdetails.ErrorInfo{Reason: "FIELD_VIOLATION", Metadata: map[string]string{"k": "v"}},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "input.n", Description: "is no integer"}}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)},
	)
	if err != nil {
		t.Fatal(err)
	}
	wrapped := fmt.Errorf("starting: %w", ErrorFrom(said.Err()))
	var got *Error
	if !errors.As(wrapped, &got) || got.Reason != "FIELD_VIOLATION" || got.Metadata["k"] != "v" ||
		got.RetryAfter != time.Second || len(got.Violations) != 1 || got.Violations[0].Field != "input.n" {
		t.Errorf("%+v", got)
	}
	if !errors.Is(wrapped, ErrInvalidArgument) || errors.Is(wrapped, ErrNotFound) {
		t.Error("the situation is wrong")
	}
	late := ErrorFrom(status.Error(codes.DeadlineExceeded, "late"))
	if !errors.Is(late, context.DeadlineExceeded) || !errors.Is(late, ErrDeadlineExceeded) {
		t.Error("a deadline of gRPC is none of the context's")
	}
	if given := gaveUp(got); !errors.Is(given, ErrDeadlineExceeded) || !errors.Is(given, ErrInvalidArgument) {
		t.Error("a call that ran out of time forgets what it met")
	}
}

func TestCodesAreWrittenAsTheProtocolHasThem(t *testing.T) {
	for code, want := range map[codes.Code]string{
		codes.OK: "OK", codes.Canceled: "CANCELLED", codes.NotFound: "NOT_FOUND", codes.DeadlineExceeded: "DEADLINE_EXCEEDED",
	} {
		if got := codeName(code); got != want {
			t.Errorf("%v is %s", code, got)
		}
	}
}

// outcomeOf gives what is reported of a handler's end, in short.
func outcomeOf(ctx context.Context, output string, err error) string {
	switch kind := outcome(ctx, json.RawMessage(output), err).(type) {
	case *workerv1.Complete:
		return "complete " + kind.Output.GetJson()
	case *workerv1.Release:
		return "release"
	case *workerv1.Fail:
		return fmt.Sprintf("fail %s %v %q %s", kind.Failure.Code, kind.GetRetryable(), kind.Failure.Message, kind.Failure.Details.GetJson())
	default:
		return "nothing"
	}
}

func TestTheEndOfAHandlerDecidesWhatIsReported(t *testing.T) {
	ended := func(cause error) context.Context {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		return ctx
	}
	background, boom := context.Background(), errors.New("boom")
	for name, c := range map[string]struct {
		ctx    context.Context
		output string
		err    error
		want   string
	}{
		"a result":                          {background, `{"a":1}`, nil, `complete {"a":1}`},
		"a result after a cancel":           {ended(ErrTaskStopped), `1`, nil, `complete 1`},
		"any error":                         {background, "", boom, `fail FAILED true "boom" `},
		"a permanent one":                   {background, "", fmt.Errorf("charging: %w", Permanent("CARD_DECLINED", boom)), `fail CARD_DECLINED false "boom" `},
		"one with a message":                {background, "", &RetryableError{Message: "later", Err: boom, Details: 7}, `fail FAILED true "later" 7`},
		"an impossible code":                {background, "", &PermanentError{Code: "kein Geld!" + strings.Repeat("x", 80)}, `fail kein_Geld_` + strings.Repeat("x", 53) + ` false "" `},
		"details that cannot be said":       {background, "", &PermanentError{Code: "A", Message: "b", Details: make(chan int)}, `fail A false "b (its details have no JSON form: json: unsupported type: chan int)" `},
		"stopped by the server":             {ended(ErrTaskStopped), "", context.Canceled, "release"},
		"stopped, with an error of its own": {ended(ErrTaskStopped), "", boom, "release"},
		"stopped, and yet a failure":        {ended(ErrTaskStopped), "", Permanent("A", boom), `fail A false "boom" `},
		"stopped by the worker":             {ended(ErrWorkerStopped), "", context.Canceled, "release"},
		"out of time":                       {ended(ErrTaskTimeout), "", context.DeadlineExceeded, `fail TIMEOUT true "context deadline exceeded" `},
		"no JSON in UTF-8":                  {background, "\"\xff\"", nil, `fail OUTPUT_UNENCODABLE false "the output is no JSON text in UTF-8" `},
		"too large":                         {background, `"` + strings.Repeat("x", 2<<20) + `"`, nil, `fail PAYLOAD_TOO_LARGE false "the output has 2097154 bytes; at most 2097152 are taken" `},
	} {
		if got := outcomeOf(c.ctx, c.output, c.err); got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
}

func TestTypedHandlersCheckBothSidesAndCatchPanics(t *testing.T) {
	type in struct{ N int }
	code := func(err error) string {
		var permanent *PermanentError
		var retryable *RetryableError
		switch {
		case errors.As(err, &permanent):
			return "permanent " + permanent.Code
		case errors.As(err, &retryable):
			return "retryable " + retryable.Code
		}
		return fmt.Sprint(err)
	}
	handler := Typed(func(_ context.Context, given in) (any, error) {
		switch given.N {
		case 1:
			return make(chan int), nil
		case 2:
			panic("oh no")
		}
		return given.N * 2, nil
	})
	for input, want := range map[string]string{
		`{"N":21}`: "42 <nil>", `{"N":"x"}`: " permanent INPUT_INVALID", `{"N":1}`: " permanent OUTPUT_UNENCODABLE",
		`{"N":2}`: " retryable PANIC",
	} {
		output, err := handler(context.Background(), json.RawMessage(input))
		if got := string(output) + " " + code(err); got != want {
			t.Errorf("%s: %q; want %q", input, got, want)
		}
	}
	_, err := handler(context.Background(), json.RawMessage(`{"N":2}`))
	var crashed *RetryableError
	if !errors.As(err, &crashed) || crashed.Message != "oh no" || !strings.Contains(crashed.Details.(map[string]string)["stack"], "values_test.go") {
		t.Errorf("the panic tells %+v", crashed)
	}
}

func TestPausesGrowToTheirLimitAndBeginAnew(t *testing.T) {
	pauses := backoffPauses{first: 100 * time.Millisecond, longest: 10 * time.Second}
	limit := 100 * time.Millisecond
	for range 20 {
		if got := pauses.next(); got < limit/10 || got > limit {
			t.Errorf("%s where at most %s was due", got, limit)
		}
		limit = min(10*time.Second, limit*2)
	}
	pauses.reset()
	if got := pauses.next(); got > 100*time.Millisecond {
		t.Errorf("%s after a success", got)
	}
}

func TestRequestIDsAreUUIDs(t *testing.T) {
	one, other := newID(), newID()
	if len(one) != 36 || one == other || one[14] != '4' {
		t.Errorf("%s and %s", one, other)
	}
}
