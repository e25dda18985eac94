// The worker of the order example in Go: reserves stock, charges, ships.
//
//	go run ./examples/order/go -data /tmp/books.jsonl
//
// It does the same tasks as ../worker.py, against books of its own (books.go). Where the server is and with which key says
// the environment, as for every program that uses the SDK: ORBIT_ADDRESS, ORBIT_API_KEY, ORBIT_PROFILE, ….
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	orbit "orbit.example/sdk/go"
)

const (
	// cardLimitCents is the most that any card pays at once.
	cardLimitCents = 100_000_000
	// chargeFailureShare is the share of charges that fail with -charge-failures random.
	chargeFailureShare = 0.25
)

func main() {
	data := flag.String("data", "books.jsonl", "the shop's books")
	slots := flag.Int("slots", 8, "most tasks at once")
	drain := flag.Duration("drain", 20*time.Second, "time for running tasks after a signal")
	failures := flag.String("charge-failures", "random", "which charges fail: random (a quarter), never, or the first N attempts of each")
	flag.Parse()
	if err := run(*data, *slots, *drain, *failures); err != nil {
		log.Fatal(err)
	}
}

func run(data string, slots int, drain time.Duration, failures string) error {
	books, err := OpenBooks(data)
	if err != nil {
		return err
	}
	defer books.Close()
	fails, err := chargeFailures(failures)
	if err != nil {
		return err
	}
	// The first signal drains; after that a second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	client, err := orbit.NewClient()
	if err != nil {
		return err
	}
	defer client.Close()
	return NewWorker(client, books, fails, orbit.WithSlots(slots), orbit.WithDrainTimeout(drain)).Run(ctx)
}

// NewWorker makes the worker: the handlers by contract, on the queues that ../order.yaml asks for.
func NewWorker(client *orbit.Client, books *Books, fails func(attempt int) bool, options ...orbit.WorkerOption) *orbit.Worker {
	options = append([]orbit.WorkerOption{orbit.WithQueues("default", "payments")}, options...)
	worker := orbit.NewWorker(client, options...)
	shop := &shop{books: books, chargeFails: fails}
	orbit.Handle(worker, "stock.reserve@1", shop.reserve)
	orbit.Handle(worker, "payments.charge@1", shop.charge)
	orbit.Handle(worker, "shipping.send@1", shop.ship)
	return worker
}

// The inputs and outputs of the tasks, as ../order.yaml describes them.
type (
	// Item is a position of an order.
	Item struct {
		SKU      string `json:"sku"`
		Quantity int64  `json:"quantity"`
		Cents    int64  `json:"cents"`
	}
	// ReserveInput is the input of stock.reserve@1.
	ReserveInput struct {
		OrderID string `json:"order_id"`
		Items   []Item `json:"items"`
	}
	// ReserveOutput is its output.
	ReserveOutput struct {
		Reservation string `json:"reservation"`
	}
	// ChargeInput is the input of payments.charge@1.
	ChargeInput struct {
		OrderID string `json:"order_id"`
		Cents   int64  `json:"cents"`
	}
	// ChargeOutput is its output.
	ChargeOutput struct {
		Receipt string `json:"receipt"`
	}
	// ShipInput is the input of shipping.send@1.
	ShipInput struct {
		OrderID     string `json:"order_id"`
		Reservation string `json:"reservation"`
		Express     bool   `json:"express"`
	}
	// ShipOutput is its output.
	ShipOutput struct {
		Tracking string `json:"tracking"`
	}
)

// shop has the handlers.
type shop struct {
	books       *Books
	chargeFails func(attempt int) bool
}

// reserve takes the items out of the stock.
func (s *shop) reserve(ctx context.Context, in ReserveInput) (ReserveOutput, error) {
	result, err := s.books.Reserve(orbit.Task(ctx).IdempotencyKey(), in.OrderID, in.Items)
	if errors.Is(err, ErrOutOfStock) {
		return ReserveOutput{}, orbit.Permanent("OUT_OF_STOCK", err)
	}
	return ReserveOutput{Reservation: result}, err
}

// charge takes the money. Now and then the bank does not answer: sometimes before the money moved, sometimes after.
func (s *shop) charge(ctx context.Context, in ChargeInput) (ChargeOutput, error) {
	if in.Cents > cardLimitCents {
		// The same card would refuse again, so no attempt is wasted on it.
		return ChargeOutput{}, &orbit.PermanentError{Code: "CARD_DECLINED", Message: "the card does not pay that much"}
	}
	task := orbit.Task(ctx)
	fails := s.chargeFails(task.Attempt())
	if fails && task.Attempt()%2 == 1 {
		return ChargeOutput{}, &orbit.RetryableError{Code: "BANK_UNAVAILABLE", Message: "the bank could not be reached"}
	}
	receipt, err := s.books.Charge(task.IdempotencyKey(), in.OrderID, in.Cents)
	if err != nil {
		return ChargeOutput{}, err
	}
	if fails {
		// The money has moved and nobody knows. The next attempt has the same key, so it moves once.
		return ChargeOutput{}, &orbit.RetryableError{Code: "BANK_UNAVAILABLE", Message: "the bank's answer was lost"}
	}
	return ChargeOutput{Receipt: receipt}, nil
}

// ship sends the parcel.
func (s *shop) ship(ctx context.Context, in ShipInput) (ShipOutput, error) {
	tracking, err := s.books.Ship(orbit.Task(ctx).IdempotencyKey(), in.OrderID, in.Express)
	return ShipOutput{Tracking: tracking}, err
}

// chargeFailures reads the flag: which attempts of a charge fail.
func chargeFailures(text string) (func(attempt int) bool, error) {
	switch text {
	case "random":
		return func(int) bool { return rand.Float64() < chargeFailureShare }, nil
	case "never":
		return func(int) bool { return false }, nil
	}
	first, err := strconv.Atoi(text)
	if err != nil || first < 0 {
		return nil, fmt.Errorf("-charge-failures is random, never or a number, not %q", text)
	}
	return func(attempt int) bool { return attempt <= first }, nil
}
