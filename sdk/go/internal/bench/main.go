//go:build unix

// Bench measures how many steps a second one Go worker does with handlers that do nothing, server included: it starts a
// server on a new database, keeps so many executions of so many steps going, and prints steps a second with the CPU of
// worker and server for each step.
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

func main() {
	binary := flag.String("binary", os.Getenv("ORBIT_BINARY"), "server program")
	steps := flag.Int("steps", 10, "steps of an execution, one after another")
	concurrency := flag.Int("concurrency", 128, "executions at a time")
	slots := flag.Int("slots", 256, "slots of the worker")
	mode := flag.String("mode", "stream", "stream or poll")
	duration := flag.Duration("duration", 10*time.Second, "how long, after a second to warm up")
	profile := flag.String("profile", "", "file for a CPU profile")
	flag.Parse()
	if err := run(*binary, *steps, *concurrency, *slots, orbit.Mode(*mode), *duration, *profile); err != nil {
		log.Fatal(err)
	}
}

func run(binary string, steps, concurrency, slots int, mode orbit.Mode, duration time.Duration, profile string) error {
	folder, err := os.MkdirTemp("", "orbit-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	server, address, err := start(binary, folder)
	if err != nil {
		return err
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	client, err := orbit.NewClient(orbit.WithAddress(address))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if _, err := client.Deploy(ctx, orbit.Source{Text: definition(steps)}); err != nil {
		return err
	}

	var done atomic.Int64
	worker := orbit.NewWorker(client, orbit.WithSlots(slots), orbit.WithMode(mode))
	orbit.Handle(worker, "bench.nothing@1", func(context.Context, json.RawMessage) (any, error) {
		done.Add(1)
		return nil, nil
	})
	working, rest := context.WithCancel(context.Background())
	defer rest()
	worked := make(chan error, 1)
	go func() { worked <- worker.Run(working) }()

	var callers sync.WaitGroup
	for range concurrency {
		callers.Add(1)
		go func() {
			defer callers.Done()
			for ctx.Err() == nil {
				handle, err := client.Start(ctx, "bench", nil)
				if err == nil {
					err = handle.Result(ctx, nil)
				}
				if err != nil && ctx.Err() == nil {
					log.Print(err)
					return
				}
			}
		}()
	}

	time.Sleep(time.Second)
	if profile != "" {
		file, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	stepsBefore, ownBefore, serverBefore, began := done.Load(), ownCPU(), processCPU(server.Process.Pid), time.Now()
	time.Sleep(duration)
	count, took := float64(done.Load()-stepsBefore), time.Since(began)
	own, served := ownCPU()-ownBefore, processCPU(server.Process.Pid)-serverBefore
	pprof.StopCPUProfile()
	stop()
	callers.Wait()
	rest()
	if err := <-worked; err != nil {
		return err
	}
	each := func(cpu time.Duration) float64 { return float64(cpu.Microseconds()) / count }
	fmt.Printf("%s  %d steps, %d executions at a time, %d slots, GOMAXPROCS %d: %.0f steps/s; CPU for a step: worker and callers %.1f µs, server %.1f µs\n",
		mode, steps, concurrency, slots, runtime.GOMAXPROCS(0), count/took.Seconds(), each(own), each(served))
	return nil
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
