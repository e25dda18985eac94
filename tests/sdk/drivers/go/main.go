// The driver of the Go SDK: it does what tests/sdk/runner tells it over stdin, and tells what happens on stdout. The
// protocol is in tests/sdk/README.md. It uses only what any user of the SDK can use.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"sync"
	"syscall"

	orbit "orbit.example/sdk/go"
)

// object is a JSON object.
type object = map[string]any

// A command is a line on stdin.
type command struct {
	ID   int64           `json:"id"`
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args"`
}

// An operation does a command.
type operation func(context.Context, command) (object, error)

// A driver is this process: one client, at most one worker at a time.
type driver struct {
	out     sync.Mutex
	encoder *json.Encoder

	mu     sync.Mutex
	client *orbit.Client
	worker *running

	gates gates
	count counters
}

func main() {
	d := &driver{encoder: json.NewEncoder(os.Stdout)}
	d.encoder.SetEscapeHTML(false)
	d.tell(object{"event": "ready", "language": "go", "sdk": "orbit-go/" + orbit.Version})

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-signals
		d.stopWorker()
		os.Exit(0)
	}()

	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var c command
			if err := json.Unmarshal(line, &c); err != nil {
				panic(fmt.Sprintf("no command: %s: %v", line, err))
			}
			go d.do(c)
		}
		if err == io.EOF {
			os.Exit(0)
		} else if err != nil {
			panic(err)
		}
	}
}

// tell prints one line.
func (d *driver) tell(line object) {
	d.out.Lock()
	defer d.out.Unlock()
	if err := d.encoder.Encode(line); err != nil {
		panic(err)
	}
}

// do does a command and replies.
func (d *driver) do(c command) {
	ops := map[string]operation{
		"client.deploy": d.deploy, "client.start": d.start, "client.result": d.result, "client.wait": d.wait,
		"client.describe": d.describe, "client.signal": d.signal, "client.query": d.query, "client.cancel": d.cancel,
		"client.terminate": d.terminate, "client.list": d.list, "client.events": d.events, "client.connect": d.connect,
		"worker.start": d.startWorker, "worker.stop": d.stop, "worker.status": d.status, "gate.open": d.openGate,
		"client.rerun": d.rerun, "client.count": d.countAll, "client.definitions": d.definitions, "client.definition": d.definition,
	}
	maps.Copy(ops, d.scheduleOps())
	maps.Copy(ops, d.batchOps())
	op, ok := ops[c.Op]
	if !ok {
		d.tell(object{"id": c.ID, "error": object{"class": "UnknownOp", "message": c.Op}})
		return
	}
	result, err := op(context.Background(), c)
	if err != nil {
		d.tell(object{"id": c.ID, "error": errorObject(err)})
		return
	}
	if result == nil {
		result = object{}
	}
	d.tell(object{"id": c.ID, "ok": result})
}

// read reads a command's arguments.
func read[T any](c command) T {
	var args T
	if len(c.Args) > 0 {
		if err := json.Unmarshal(c.Args, &args); err != nil {
			panic(fmt.Sprintf("%s: arguments %s: %v", c.Op, c.Args, err))
		}
	}
	return args
}

// value turns JSON text into the value that a user would have, with exact integers; nil of nil.
func value(text *string) any {
	if text == nil {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(*text)))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		panic(fmt.Sprintf("%q: %v", *text, err))
	}
	return v
}

// text turns a value that came from the SDK into JSON text.
func text(v any) string {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return string(bytes.TrimSpace(buffer.Bytes()))
}
