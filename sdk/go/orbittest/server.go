// Package orbittest has what tests of workers and callers need:
//
//   - [StartServer] runs the real server, with an empty database of its own, for one test.
//   - [NewFake] is a server in memory, for unit tests of callers and of whole workers without a binary.
//   - [RunHandler] runs one handler as if its task had been dispatched.
package orbittest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	orbit "orbit.example/sdk/go"
)

// startTimeout is how long a server may take to start.
const startTimeout = 30 * time.Second

// ErrNoBinary says that no server program was found.
var ErrNoBinary = errors.New("orbittest: no orbit program: set ORBIT_BINARY, or put it on the PATH")

// A Server is a real server with a database of its own.
type Server struct {
	binary    string
	folder    string
	arguments []string
	address   string

	mu      sync.Mutex
	process *exec.Cmd
	log     *tail
}

// A ServerOption changes one setting of a [Server].
type ServerOption func(*Server)

// WithBinary names the server program. Default: ORBIT_BINARY, orbit on the PATH, or what lies in target/release or
// target/debug of a folder above.
func WithBinary(path string) ServerOption { return func(s *Server) { s.binary = path } }

// WithArguments adds arguments of `orbit server`, for example --session-timeout 3s.
func WithArguments(arguments ...string) ServerOption {
	return func(s *Server) { s.arguments = append(s.arguments, arguments...) }
}

// StartServer starts a server on a free port of this machine and stops it when the test ends. Without a server program it
// fails the test.
func StartServer(t testing.TB, options ...ServerOption) *Server {
	t.Helper()
	s := &Server{folder: t.TempDir(), address: "127.0.0.1:0", log: &tail{}}
	for _, option := range options {
		option(s)
	}
	if s.binary == "" {
		found, err := FindBinary()
		if err != nil {
			t.Fatal(err)
		}
		s.binary = found
	}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("the server's log:\n%s", s.log)
		}
	})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// FindBinary looks for the server program: in ORBIT_BINARY, on the PATH, and in target/release and target/debug of this
// folder and those above.
func FindBinary() (string, error) {
	if named := os.Getenv("ORBIT_BINARY"); named != "" {
		return named, nil
	}
	if found, err := exec.LookPath("orbit"); err == nil {
		return filepath.Abs(found)
	}
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		for _, build := range []string{"release", "debug"} {
			path := filepath.Join(folder, "target", build, "orbit")
			if info, err := os.Stat(path); err == nil && !info.IsDir() {
				return path, nil
			}
		}
		above := filepath.Dir(folder)
		if above == folder {
			return "", ErrNoBinary
		}
		folder = above
	}
}

// Address is http://HOST:PORT; it stays the same over restarts.
func (s *Server) Address() string { return "http://" + s.address }

// PID is the server's process, or 0 if none runs.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.Process.Pid
}

// Client makes a client of the server, which is closed when the test ends.
func (s *Server) Client(t testing.TB, options ...orbit.ClientOption) *orbit.Client {
	t.Helper()
	client, err := orbit.NewClient(append([]orbit.ClientOption{orbit.WithAddress(s.Address())}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// listening is the server's first line.
var listening = regexp.MustCompile(`serves on (\S+:\d+)`)

// Start starts the server again after [Server.Stop] or [Server.Kill], with the same data and on the same port.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return errors.New("orbittest: the server runs already")
	}
	arguments := []string{"server", "--db", filepath.Join(s.folder, "orbit.db"), "--listen", s.address}
	process := exec.Command(s.binary, append(arguments, s.arguments...)...)
	// What the test's own environment says about a server is meant for another one.
	for _, setting := range os.Environ() {
		if !strings.HasPrefix(setting, "ORBIT_") {
			process.Env = append(process.Env, setting)
		}
	}
	output, err := process.StdoutPipe()
	if err != nil {
		return fmt.Errorf("orbittest: %w", err)
	}
	process.Stderr = s.log
	if err := process.Start(); err != nil {
		return fmt.Errorf("orbittest: starting %s: %w", s.binary, err)
	}
	address := make(chan string, 1)
	go func() {
		lines := bufio.NewReader(output)
		line, _ := lines.ReadString('\n')
		address <- line
		_, _ = io.Copy(io.Discard, lines)
	}()
	select {
	case line := <-address:
		found := listening.FindStringSubmatch(line)
		if found == nil {
			_ = process.Process.Kill()
			_ = process.Wait()
			return fmt.Errorf("orbittest: %s said %q instead of its address; its log:\n%s", s.binary, line, s.log)
		}
		s.address, s.process = found[1], process
		return nil
	case <-time.After(startTimeout):
		_ = process.Process.Kill()
		_ = process.Wait()
		return fmt.Errorf("orbittest: %s did not start within %s; its log:\n%s", s.binary, startTimeout, s.log)
	}
}

// Stop ends the server in order (SIGTERM) and waits for it.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

// Kill ends the server at once, as a crash does (SIGKILL).
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

func (s *Server) end(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return
	}
	_ = s.process.Process.Signal(signal)
	_ = s.process.Wait()
	s.process = nil
}

// Log is the end of what the server logged.
func (s *Server) Log() string { return s.log.String() }

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 64 << 10

func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	if extra := len(t.text) - tailBytes; extra > 0 {
		t.text = bytes.Clone(t.text[extra:])
	}
	return len(text), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// RunWorker runs a worker until the test ends, and waits until it is connected.
func RunWorker(t testing.TB, worker *orbit.Worker) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the worker: %v", err)
		}
	})
	deadline := time.Now().Add(startTimeout)
	for worker.Status().State != orbit.WorkerConnected {
		select {
		case err := <-done:
			done <- nil
			t.Fatalf("the worker ended: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the worker is not connected")
		}
	}
}
