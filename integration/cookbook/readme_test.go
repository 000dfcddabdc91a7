package cookbook

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// readme has the commands of a user who tries rutter for the first time.
const readme = "../../README.md"

// The commands of README.md after `rutter dev` work in another terminal as they
// stand there.
func TestCommandsOfTheREADME(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	section := regexp.MustCompile("(?s)## A cluster to play with\n.*?```\n(.*?)```").FindStringSubmatch(string(text))
	if section == nil {
		t.Fatalf("%s has no cluster to play with", readme)
	}
	var commands []string
	flags := "none"
	for line := range strings.Lines(section[1]) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		if rest, isDev := strings.CutPrefix(strings.TrimSpace(line), "bin/rutter dev"); isDev {
			flags = rest
		} else if command, ours := strings.CutPrefix(line, "bin/"); ours {
			commands = append(commands, command)
		}
	}
	if flags == "none" || len(commands) < 3 {
		t.Fatalf("%s: rutter dev is not there, or but %d commands after it", readme, len(commands))
	}
	server := start(t, ctx, strings.Fields(flags)...)
	for _, command := range commands {
		try(t, ctx, command, "RUTTER_SERVER="+server.URL)
	}
}

// `rutter dev` speaks TLS; the commands that it prints work as they stand there.
func TestCommandsThatDevPrints(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	server := start(t, ctx)
	said, err := os.ReadFile(server.LogFile)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(said)) {
		// A trace between simulated kernels ends with doubts, and a bundle writes a file:
		// integration/support.TestDev runs these two.
		if line = strings.TrimSpace(line); strings.HasPrefix(line, rutter) && !strings.Contains(line, " trace ") && !strings.Contains(line, " support bundle ") {
			try(t, ctx, line)
			n++
		}
	}
	if n < 5 || !strings.Contains(string(said), server.URL+"/console/") {
		t.Errorf("it prints %d commands, and where the console is: %s", n, said)
	}
}

// try runs a command, which must print something and end well; one that follows
// is ended when it has printed a line.
func try(t *testing.T, ctx context.Context, command string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+command)
	cmd.Env = append(os.Environ(), append(env, "PATH="+filepath.Dir(rutter)+":"+os.Getenv("PATH"))...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	r := bufio.NewReader(out)
	line, _ := r.ReadString('\n') // what ends early has printed nothing
	follows := strings.Contains(command, "--follow")
	if follows {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	_, _ = io.Copy(io.Discard, r) // until it ends
	if err := cmd.Wait(); line == "" || err != nil && !follows {
		t.Errorf("$ %s\nprints %q: %v: %s", command, line, err, said.String())
	}
}
