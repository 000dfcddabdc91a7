package vmhelper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/internal/vmtest"
	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmrun"
	"rutter/log"
)

// Variables that make this program a helper, or one of its clients.
const (
	serveVariable = "VMHELPER_TEST_SERVE" // the folders and the socket, as JSON
	hostVariable  = "VMHELPER_TEST_HOSTILE"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(serveVariable); text != "" {
		if err := serveVMs(text); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	if text := os.Getenv(hostVariable); text != "" {
		hostile(text)
		return
	}
	os.Exit(m.Run())
}

// settings are those of a helper's process.
type settings struct {
	Config vmrun.Config
	Socket string
	Drain  time.Duration
}

// serveVMs is a helper, until SIGTERM.
func serveVMs(text string) error {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	runner, err := vmrun.New(s.Config)
	if err != nil {
		return err
	}
	_ = os.Remove(s.Socket) // of one that was killed
	listener, err := net.Listen("unix", s.Socket)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println("ready")
	return NewServer(ServerConfig{Runner: runner, Version: "helper", Drain: s.Drain, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}).Run(ctx, listener)
}

// helper is a process that runs VMs, and a client of it.
type helper struct {
	*Client
	t      *testing.T
	site   *vmtest.Site
	set    settings
	zone   string
	cmd    *exec.Cmd
	ended  chan error
	reader *vmrun.Runner
}

// newHelper starts a helper, with a client that begins to watch it.
func newHelper(t *testing.T, name string) *helper {
	t.Helper()
	vmtest.NeedRoot(t)
	s := vmtest.NewSite(t)
	s.Cgroups = filepath.Join(filepath.Dir(system.DefaultCgroup()), fmt.Sprintf("rutter-helper-%s-%d", name, os.Getpid()))
	if err := os.Mkdir(s.Cgroups, 0o755); err != nil {
		t.Skipf("no cgroups of our own here: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(s.Cgroups) })
	zone := fmt.Sprintf("vmhelper-%s-%d", name, os.Getpid())
	vmtest.Shell(t, "ip", "netns", "add", zone) // whether it can be done here
	_ = exec.Command("ip", "netns", "del", zone).Run()
	h := &helper{t: t, site: s, zone: zone, set: settings{
		Config: vmrun.Config{Manifests: s.Manifests, PIDs: s.PIDs, Cgroup: s.Cgroups, Grace: time.Second},
		Socket: filepath.Join(t.TempDir(), "vms.sock"),
	}}
	var err error
	if h.reader, err = vmrun.New(h.set.Config); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.Client = NewClient(ClientConfig{Socket: h.set.Socket, Reader: h.reader, Version: "client", ProbeEvery: 50 * time.Millisecond, ProbeWithin: 2 * time.Second})
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan error, 1)
	go func() { watched <- h.Client.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-watched; err != nil {
			t.Error(err)
		}
	})
	h.until("answers", func(s Status) bool { return s.Answers })
	return h
}

// start starts the helper's process.
func (h *helper) start() {
	h.t.Helper()
	text, err := json.Marshal(h.set)
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), serveVariable+"="+string(text))
	cmd.Stderr = h.t.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.cmd, h.ended = cmd, make(chan error, 1)
	line, _ := bufio.NewReader(out).ReadString('\n')
	ended := h.ended
	go func() { ended <- cmd.Wait() }()
	if line != "ready\n" {
		h.t.Fatalf("the helper: %q", line)
	}
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Process.Signal(syscall.SIGCONT)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			h.t.Error("the helper does not end")
		}
	})
}

// signal sends a signal to the helper's process, and waits for its end if it ends it.
func (h *helper) signal(s syscall.Signal) {
	h.t.Helper()
	if err := h.cmd.Process.Signal(s); err != nil {
		h.t.Fatal(err)
	}
	if s == syscall.SIGSTOP {
		h.stopped()
	}
	if s == syscall.SIGKILL || s == syscall.SIGTERM {
		err := <-h.ended
		h.ended <- err
	}
}

// stopped waits until no thread of the helper's process runs.
func (h *helper) stopped() {
	h.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", h.cmd.Process.Pid)) // the pattern is right
		run := len(threads) == 0
		for _, name := range threads {
			text, err := os.ReadFile(name)
			run = run || err != nil || !strings.Contains(string(text), "State:\tT")
		}
		if !run {
			return
		}
	}
	h.t.Fatal("the helper does not stand still")
}

// until waits until the client's status is as is says.
func (h *helper) until(what string, is func(Status) bool) {
	h.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if s := h.Client.Status(); is(s) {
			return
		} else if time.Now().After(deadline) {
			h.t.Fatalf("the status is not: %s: %+v", what, s)
		}
	}
}

// write writes the manifest of the nth VM, which is stopped at the end.
func (h *helper) write(n int, fields string) log.UUID {
	h.t.Helper()
	h.site.WriteVM(n, fmt.Sprintf(`,"zonename":"%s-%d"%s`, h.zone, n, fields))
	id, err := log.ParseUUID(vmtest.UUID(n))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := h.reader.Stop(context.Background(), id, true); err != nil && !errors.Is(err, vmrun.ErrNotRunning) && !errors.Is(err, vmrun.ErrNoVM) {
			h.t.Error(err)
		}
	})
	return id
}

// process is the init process of a VM that runs; 0: none.
func (h *helper) process(id log.UUID) int {
	text, err := os.ReadFile(filepath.Join(h.site.PIDs, id.String()+".pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || unix.Kill(pid, 0) != nil {
		return 0
	}
	return pid
}

// left are what a VM has left behind.
func (h *helper) left(n int, id log.UUID) (names []string) {
	for _, path := range []string{filepath.Join("/run/netns", fmt.Sprintf("%s-%d", h.zone, n)), filepath.Join(h.site.Cgroups, id.String()), filepath.Join(h.site.PIDs, id.String()+".pid")} {
		if system.Exists(path) {
			names = append(names, path)
		}
	}
	return names
}
