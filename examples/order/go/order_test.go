package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	orbit "orbit.example/sdk/go"
	workerv1 "orbit.example/sdk/go/gen/orbit/worker/v1"
	workflowv1 "orbit.example/sdk/go/gen/orbit/workflow/v1"
	"orbit.example/sdk/go/orbittest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
)

func books(t *testing.T) *Books {
	t.Helper()
	b, err := OpenBooks(filepath.Join(t.TempDir(), "books.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestTheBooksDoEachThingOnceAlsoAfterACrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "books.jsonl")
	b, err := OpenBooks(path)
	if err != nil {
		t.Fatal(err)
	}
	first, err := b.Charge("key", "o-1", 900)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenBooks(path); err == nil {
		t.Error("two workers have the books")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"key":"cut o`); err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	if b, err = OpenBooks(path); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	again, err := b.Charge("key", "o-1", 900)
	if err != nil || again != first || len(b.Ledger("o-1")) != 1 {
		t.Errorf("%s after %s, %v; the ledger has %v", again, first, err, b.Ledger("o-1"))
	}
	if _, err := b.Reserve("r", "o-1", []Item{{SKU: "desk", Quantity: firstStock + 1}}); !errors.Is(err, ErrOutOfStock) {
		t.Errorf("%v", err)
	}
}

func TestMoneyMovesOnceHoweverOftenTheBankFails(t *testing.T) {
	b := books(t)
	s := &shop{books: b, chargeFails: func(attempt int) bool { return attempt <= 2 }}
	for attempt, want := range []string{"BANK_UNAVAILABLE", "BANK_UNAVAILABLE", ""} {
		_, err := orbittest.RunHandler(t.Context(), s.charge, ChargeInput{OrderID: "o-1", Cents: 900}, orbittest.Dispatch{Attempt: attempt + 1})
		var failed *orbit.RetryableError
		if errors.As(err, &failed); (failed == nil) != (want == "") {
			t.Errorf("attempt %d: %v", attempt+1, err)
		}
	}
	if ledger := b.Ledger("o-1"); len(ledger) != 1 || ledger[0].Cents != 900 {
		t.Errorf("%v", ledger)
	}
	_, err := orbittest.RunHandler(t.Context(), s.charge, ChargeInput{Cents: cardLimitCents + 1}, orbittest.Dispatch{})
	var declined *orbit.PermanentError
	if !errors.As(err, &declined) || declined.Code != "CARD_DECLINED" {
		t.Errorf("%v", err)
	}
}

// place starts a real server with a definition of this example and an order.
func place(t *testing.T, definition, workflow string) (*orbittest.Server, *orbit.Client, *orbit.ExecutionHandle) {
	t.Helper()
	if _, err := orbittest.FindBinary(); err != nil {
		t.Skip(err)
	}
	server := orbittest.StartServer(t)
	client := server.Client(t)
	if _, err := client.DeployFiles(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	input, err := os.ReadFile("../input.json")
	if err != nil {
		t.Fatal(err)
	}
	handle, err := client.Start(t.Context(), workflow, json.RawMessage(input))
	if err != nil {
		t.Fatal(err)
	}
	return server, client, handle
}

func TestAnOrderIsDeliveredByGoAlone(t *testing.T) {
	_, client, handle := place(t, "../order.yaml", "order")
	b := books(t)
	orbittest.RunWorker(t, NewWorker(client, b, func(attempt int) bool { return attempt == 1 }))
	if _, err := handle.Signal(t.Context(), "approved", map[string]string{"by": "test"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	result, err := orbit.Result[struct{ Receipt, Tracking string }](ctx, handle)
	if err != nil || result.Receipt == "" || result.Tracking == "" {
		t.Errorf("%+v, %v", result, err)
	}
	if ledger := b.Ledger("o-1001"); len(ledger) != 1 {
		t.Errorf("the ledger has %v", ledger)
	}
}

// Workers of the other languages are played by bare stubs here: what matters is who gets which task.
func TestEachTaskOfAMixedOrderGoesToItsLanguage(t *testing.T) {
	server, client, handle := place(t, "../mixed.yaml", "order-in-three-languages")
	orbittest.RunWorker(t, NewWorker(client, books(t), func(int) bool { return false }))
	conn, err := grpc.NewClient(server.Address()[len("http://"):], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stub := workerv1.NewWorkerServiceClient(conn)
	do := func(language, contract, output string) {
		t.Helper()
		session, err := stub.RegisterWorker(t.Context(), &workerv1.RegisterWorkerRequest{WorkerId: language, Language: language,
			Contracts: []string{"stock.reserve@1", "payments.charge@1", "shipping.send@1"}, Queues: []string{"default", "payments"}})
		if err != nil {
			t.Fatal(err)
		}
		polled, err := stub.PollTasks(t.Context(), &workerv1.PollTasksRequest{SessionId: session.SessionId, WaitDuration: durationpb.New(20 * time.Second)})
		if err != nil || len(polled.Tasks) != 1 || polled.Tasks[0].Contract != contract {
			t.Fatalf("%s got %v, %v", language, polled, err)
		}
		if _, err := stub.CompleteTask(t.Context(), &workerv1.CompleteTaskRequest{TaskToken: polled.Tasks[0].TaskToken,
			Output: &workflowv1.Payload{Content: &workflowv1.Payload_Json{Json: output}}}); err != nil {
			t.Fatal(err)
		}
	}
	do("python", "stock.reserve@1", `{"reservation":"R-1"}`)
	do("typescript", "shipping.send@1", `{"tracking":"T-1"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	result, err := orbit.Result[struct{ Receipt, Tracking string }](ctx, handle)
	if err != nil || result.Receipt == "" || result.Tracking != "T-1" {
		t.Errorf("%+v, %v", result, err)
	}
}
