package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Tests is a testing.M.
type Tests interface {
	Run() int
}

// Env names a rutter that has been built, by `make test` for all packages at once. If
// it is not set, each package builds its own.
const Env = "RUTTER_PROGRAM"

// Variables of an agent's --socket and --etc-netns.
const (
	socketEnv = "RUTTER_AGENT_SOCKET"
	etcEnv    = "RUTTER_ETC_NETNS"
)

// Run builds rutter as `make build` does, or copies the one that Env names, sets path to
// it, runs the tests and removes it. It returns the code to exit with: 1 if there is none.
func Run(m Tests, path *string) int {
	dir, err := build(path)
	if dir != "" {
		defer os.RemoveAll(dir)
	}
	if err == nil {
		err = os.Setenv(Env, *path) // for tests that start themselves in namespaces
	}
	if err == nil && os.Getenv(socketEnv) == "" {
		err = os.Setenv(socketEnv, "off") // agents of tests do not share the node's socket
	}
	if err == nil && os.Getenv(etcEnv) == "" {
		err = os.Setenv(etcEnv, filepath.Join(dir, "etc-netns")) // an interrupted test leaves none in /etc/netns
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	sweep("/sys/fs/cgroup", time.Now())
	return m.Run()
}

func build(path *string) (dir string, err error) {
	dir, err = os.MkdirTemp("", "rutter-program-")
	if err != nil {
		return "", err
	}
	// Every user may read it: a test runs it as a user without rights.
	if err := os.Chmod(dir, 0o755); err != nil {
		return dir, err
	}
	*path = filepath.Join(dir, "rutter")
	if built := os.Getenv(Env); built != "" {
		b, err := os.ReadFile(built)
		if err == nil {
			err = os.WriteFile(*path, b, 0o755)
		}
		return dir, err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", *path, "rutter/cmd/rutter")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, errors.Join(fmt.Errorf("build rutter: %w", err), errors.New(string(out)))
	}
	return dir, nil
}
