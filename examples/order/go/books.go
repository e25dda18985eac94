package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// firstStock is how many pieces there are of something that is asked for the first time.
const firstStock = 1_000_000

// ErrOutOfStock says that there is not enough of something. Nothing was reserved.
var ErrOutOfStock = errors.New("out of stock")

// Books are the shop's own: stock, ledger and shipments, one line of JSON for each thing that was done.
//
// They stand for the systems that real handlers talk to. Each operation takes an idempotency key and happens once for it:
// the line has the key and the work together, so a task that is handed out again, or whose report was lost, finds its own
// result and does nothing twice.
type Books struct {
	mu    sync.Mutex
	file  *os.File
	done  map[string]Entry
	stock map[string]int64
}

// An Entry is one thing that was done.
type Entry struct {
	Key     string `json:"key"`
	Kind    string `json:"kind"`
	OrderID string `json:"order_id"`
	// Cents of a charge.
	Cents int64 `json:"cents,omitempty"`
	// Items of a reservation.
	Items  []Item `json:"items,omitempty"`
	Result string `json:"result"`
}

// OpenBooks opens the books, and makes them if they are not there. One process has them at a time.
func OpenBooks(path string) (*Books, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the books: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("another worker has the books %s: %w", path, err)
	}
	b := &Books{file: file, done: map[string]Entry{}, stock: map[string]int64{}}
	end := int64(0)
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			// A line without an end was cut off by a crash: it was never reported.
			break
		}
		var entry Entry
		if err := json.Unmarshal(line, &entry); err != nil {
			_ = file.Close()
			return nil, fmt.Errorf("the books %s: %w", path, err)
		}
		end += int64(len(line))
		b.take(entry)
	}
	if err := file.Truncate(end); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("repairing the books: %w", err)
	}
	return b, nil
}

// Close closes the books.
func (b *Books) Close() error { return b.file.Close() }

// Reserve takes all items out of the stock, or returns [ErrOutOfStock] and takes none.
func (b *Books) Reserve(key, orderID string, items []Item) (string, error) {
	return b.once(Entry{Key: key, Kind: "reservation", OrderID: orderID, Items: items, Result: "R-" + short(key)})
}

// Charge writes one entry into the ledger.
func (b *Books) Charge(key, orderID string, cents int64) (string, error) {
	return b.once(Entry{Key: key, Kind: "charge", OrderID: orderID, Cents: cents, Result: "C-" + short(key)})
}

// Ship sends the order off; the tracking number says how.
func (b *Books) Ship(key, orderID string, express bool) (string, error) {
	service := "T-"
	if express {
		service = "X-"
	}
	return b.once(Entry{Key: key, Kind: "shipment", OrderID: orderID, Result: service + short(key)})
}

// Ledger gives the charges of an order.
func (b *Books) Ledger(orderID string) []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	var charges []Entry
	for _, entry := range b.done {
		if entry.Kind == "charge" && entry.OrderID == orderID {
			charges = append(charges, entry)
		}
	}
	return charges
}

// once does something and records it, durably; a key that is there gives its result again.
func (b *Books) once(entry Entry) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before, ok := b.done[entry.Key]; ok {
		return before.Result, nil
	}
	wanted := map[string]int64{}
	for _, item := range entry.Items {
		wanted[item.SKU] += max(1, item.Quantity)
	}
	for sku, quantity := range wanted {
		if firstStock-b.stock[sku] < quantity {
			return "", fmt.Errorf("%w: there are not %d of %s", ErrOutOfStock, quantity, sku)
		}
	}
	line, err := json.Marshal(entry)
	if err != nil {
		return "", fmt.Errorf("writing the books: %w", err)
	}
	if _, err := b.file.Write(append(line, '\n')); err != nil {
		return "", fmt.Errorf("writing the books: %w", err)
	}
	if err := b.file.Sync(); err != nil {
		return "", fmt.Errorf("writing the books: %w", err)
	}
	b.take(entry)
	return entry.Result, nil
}

// take keeps what an entry says. The lock must be held, but while the books are opened.
func (b *Books) take(entry Entry) {
	b.done[entry.Key] = entry
	for _, item := range entry.Items {
		b.stock[item.SKU] += max(1, item.Quantity)
	}
}

func short(key string) string { return key[:min(len(key), 12)] }
