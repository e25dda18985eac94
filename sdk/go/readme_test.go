package orbit_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"orbit.example/sdk/go/orbittest"
)

// fenced finds a block of the README: its language and its text.
var fenced = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

func TestTheReadmeDoesWhatItSays(t *testing.T) {
	binary, err := orbittest.FindBinary()
	if err != nil {
		t.Skip(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "hello")
	address := orbittest.StartServer(t).Address()
	sh := func(script, folder string) *exec.Cmd {
		command := exec.Command("bash", "-euc", script)
		command.Dir = folder
		command.Env = append(os.Environ(), "ORBIT_BINARY="+binary,
			"ORBIT_ADDRESS="+address, "GOFLAGS=-buildvcs=false")
		return command
	}
	var install, tidy, output string
	files := map[string]string{}
	for _, block := range fenced.FindAllStringSubmatch(string(readme), -1) {
		switch language, text := block[1], block[2]; {
		case language == "go":
			name, _, _ := strings.Cut(strings.TrimPrefix(text, "// "), "\n")
			files[name] = text
		case strings.Contains(text, "go mod init"):
			install = strings.Replace(text, "ORBIT=~/orbit", "ORBIT="+filepath.Join(here, "../.."), 1)
		case strings.Contains(text, "go build"):
			// What it builds and runs comes last, below.
			tidy, _, _ = strings.Cut(text, "go build")
		case language == "text":
			output = strings.TrimSpace(text)
		}
	}
	if out, err := sh(install, filepath.Dir(folder)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := sh(tidy+"test -z \"$(gofmt -l .)\"\ngo vet ./...\ngo test ./...\ngo build -o hello .", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program := sh("exec ./hello", folder)
	var logged bytes.Buffer
	program.Stderr = &logged
	printed, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1)
	go func() {
		scanner := bufio.NewScanner(printed)
		scanner.Scan()
		lines <- scanner.Text()
	}()
	select {
	case line := <-lines:
		if line != output {
			t.Errorf("it prints %q; the README says %q", line, output)
		}
	case <-time.After(30 * time.Second):
		t.Error("it prints nothing")
	}
	if err := program.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := program.Wait(); err != nil {
		t.Errorf("it does not end in order: %v", err)
	}
	if !regexp.MustCompile(`orbit: stopped reported=0 released=0 unreported=0 seconds=\S+\n$`).Match(logged.Bytes()) {
		t.Errorf("its last words are not what became of its tasks:\n%s", &logged)
	}
}
