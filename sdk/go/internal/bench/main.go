//go:build unix

// Bench measures how many steps a second one Go worker does with handlers that do nothing, server included: it starts a
// server on a new database and many executions of ten steps each, one after another, then the worker, and prints steps a
// second with the CPU of worker and server for each step. On a machine with other work the CPU says more than the rate.
//
//	go run ./internal/bench -binary ../../target/release/orbit
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	orbit "orbit.example/sdk/go"
)

// starters is how many starts are under way at once.
const starters = 64

type options struct {
	binary, profile          string
	executions, steps, slots int
	mode                     orbit.Mode
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", os.Getenv("ORBIT_BINARY"), "server program")
	flag.IntVar(&o.executions, "executions", 10_000, "executions")
	flag.IntVar(&o.steps, "steps", 10, "steps of each, one after another")
	flag.IntVar(&o.slots, "slots", 1000, "slots of the worker")
	flag.StringVar((*string)(&o.mode), "mode", "stream", "stream or poll")
	flag.StringVar(&o.profile, "profile", "", "file for a CPU profile")
	flag.Parse()
	if err := run(o); err != nil {
		log.Fatal(err)
	}
}

func run(o options) error {
	folder, err := os.MkdirTemp("", "orbit-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	server, address, err := start(o.binary, folder)
	if err != nil {
		return err
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	ctx := context.Background()
	client, err := orbit.NewClient(orbit.WithAddress(address), orbit.WithCallTimeout(time.Minute))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Deploy(ctx, orbit.Source{Text: definition(o.steps)}); err != nil {
		return err
	}
	if err := startAll(ctx, client, o.executions); err != nil {
		return err
	}

	total := int64(o.executions * o.steps)
	var count atomic.Int64
	all := make(chan struct{})
	worker := orbit.NewWorker(client, orbit.WithSlots(o.slots), orbit.WithMode(o.mode))
	orbit.Handle(worker, "bench.nothing@1", func(context.Context, json.RawMessage) (any, error) {
		if count.Add(1) == total {
			close(all)
		}
		return nil, nil
	})
	if o.profile != "" {
		file, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
	}
	ownBefore, serverBefore, began := ownCPU(), processCPU(server.Process.Pid), time.Now()
	working, rest := context.WithCancel(ctx)
	defer rest()
	worked := make(chan error, 1)
	go func() { worked <- worker.Run(working) }()
	select {
	case <-all:
	case err := <-worked:
		return err
	}
	took := time.Since(began)
	own, served := ownCPU()-ownBefore, processCPU(server.Process.Pid)-serverBefore
	pprof.StopCPUProfile()
	rest()
	each := func(cpu time.Duration) float64 { return float64(cpu.Microseconds()) / float64(total) }
	fmt.Printf("%.0f steps/s: %d steps in %.1f s by %s, %d slots, GOMAXPROCS %d; CPU for a step: worker %.1f µs, server %.1f µs\n",
		float64(total)/took.Seconds(), total, took.Seconds(), o.mode, o.slots, runtime.GOMAXPROCS(0), each(own), each(served))
	return <-worked
}

// startAll starts the executions.
func startAll(ctx context.Context, client *orbit.Client, executions int) error {
	var left atomic.Int64
	left.Store(int64(executions))
	failed := make(chan error, starters)
	var callers sync.WaitGroup
	for range starters {
		callers.Add(1)
		go func() {
			defer callers.Done()
			for left.Add(-1) >= 0 {
				if _, err := client.Start(ctx, "bench", nil); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	callers.Wait()
	close(failed)
	return <-failed
}

// start starts a server on a free port.
func start(binary, folder string) (*exec.Cmd, string, error) {
	server := exec.Command(binary, "server", "--db", folder+"/orbit.db", "--listen", "127.0.0.1:0", "--log", "warn")
	server.Stderr = os.Stderr
	output, err := server.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := server.Start(); err != nil {
		return nil, "", err
	}
	line := make([]byte, 256)
	read, err := output.Read(line)
	if err != nil {
		return nil, "", fmt.Errorf("the server does not start: %w", err)
	}
	_, rest, found := strings.Cut(string(line[:read]), "serves on ")
	address, _, comma := strings.Cut(rest, ",")
	if !found || !comma {
		return nil, "", fmt.Errorf("the server said %q", line[:read])
	}
	return server, "http://" + address, nil
}

// definition is a workflow of steps in a row.
func definition(steps int) string {
	var text strings.Builder
	text.WriteString("name: bench\nversion: 1.0.0\ntasks:\n  bench.nothing@1: {}\nsteps:\n")
	for i := range steps {
		fmt.Fprintf(&text, "  - {id: s%d, task: bench.nothing@1", i)
		if i > 0 {
			fmt.Fprintf(&text, ", needs: [s%d]", i-1)
		}
		text.WriteString("}\n")
	}
	return text.String()
}

// ownCPU is the CPU time of this process.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// processCPU is the CPU time of another process, as Linux tells it; 0 elsewhere.
func processCPU(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The fields after the program's name, which may have spaces: user and system time are the 12th and 13th.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		number, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0
		}
		ticks += number
	}
	return time.Duration(ticks) * (time.Second / 100)
}
