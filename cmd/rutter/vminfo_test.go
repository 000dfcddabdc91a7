package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmrun"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/internal/app"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmcmd"
	"rutter/cmd/rutter/vminfocmd"
)

// lines is a writer that hands on what it was given, line by line.
type lines struct {
	mu   sync.Mutex // protects text
	text bytes.Buffer
	more chan struct{}
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// wait returns when the text matches.
func (l *lines) wait(t *testing.T, pattern string) {
	t.Helper()
	want, deadline := regexp.MustCompile(pattern), time.After(time.Minute)
	for !want.MatchString(l.String()) {
		select {
		case <-l.more:
		case <-deadline:
			t.Fatalf("got %q, want %s", l.String(), pattern)
		}
	}
}

// vminfoApp runs one command line of rutter vminfo.
func vminfoApp(ctx context.Context, out *lines, args ...string) error {
	program := &cli.App{
		Name: "rutter", Commands: []*cli.Command{vminfocmd.Command()}, Writer: out, ErrWriter: out,
		UseShortOptionHandling: true, ExitErrHandler: func(*cli.Context, error) {},
	}
	withoutHelp(program)
	app.Prepare(program.Commands)
	return app.Run(ctx, program, append([]string{"rutter"}, args...))
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1)} }

func TestVMInfoCommands(t *testing.T) {
	const uuid = "5595d88c-6e4d-4bda-b58e-97dd02e30001"
	folder := t.TempDir()
	write := func(quota int) {
		t.Helper()
		temp := filepath.Join(folder, ".new")
		if err := os.WriteFile(temp, fmt.Appendf(nil, `{"uuid":%q,"alias":"web0","quota":%d}`, uuid, quota), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temp, filepath.Join(folder, uuid+".json")); err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	address := freeAddress(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- vminfoApp(ctx, newLines(), "vminfo", "serve", "--manifests", folder, "--vm-run", folder, "--vminfod", address)
	}()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	ask := func(args ...string) (string, error) {
		out := newLines()
		err := vminfoApp(ctx, out, append(append([]string{"vminfo"}, args...), "--address", address)...)
		return out.String(), err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if out, err := ask("ping"); err == nil {
			if out != "pong\n" {
				t.Errorf("ping: %q", out)
			}
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ args, want string }{
		{"ping -j", `^{"ping":"pong"}\n$`},
		{"vm " + uuid, `(?s)^{\n  "uuid": "` + uuid + `",\n  "alias": "web0",`},
		{"vms -j", `^\[{"uuid":"`},
		{"vms --human", `(?m)^` + uuid + ` +web0 +stopped +-`},
		{"status --human", `(?m)^VMs +1$`},
		{"status -jf", `"fswatcher":\[`},
	} {
		if out, err := ask(strings.Fields(test.args)...); err != nil || !regexp.MustCompile(test.want).MatchString(out) {
			t.Errorf("%s: got %q, %v, want %s", test.args, out, err, test.want)
		}
	}
	if _, err := ask("vm", "none"); err == nil || term.ExitCode(err) != term.ExitFailed || !strings.Contains(err.Error(), "bad statusCode: 404") {
		t.Errorf("an unknown VM: %v", err)
	}
	if _, err := ask("events", "none"); err == nil {
		t.Error("events of an unknown VM: no error")
	}
	watch := func(want string, args ...string) {
		t.Helper()
		out, watching := newLines(), make(chan error, 1)
		inner, stop := context.WithCancel(ctx)
		go func() {
			watching <- vminfoApp(inner, out, append(append([]string{"vminfo", "events", "-r"}, args...), "--address", address)...)
		}()
		out.wait(t, "ready")
		write(int(time.Now().UnixMicro() % 1e9))
		out.wait(t, want)
		stop()
		if err := <-watching; err != nil {
			t.Error(err)
		}
	}
	watch(`\[20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ\] ` + uuid + ` modify: quota changed :: \d+ -> \d+\n`)
	watch(`\[\d\d:\d\d:\d\d\.\d\d\dZ\] 5595d88c web0 modify: quota changed :: \d+ -> \d+\n`, "--human")
	watch(`{"type":"modify","date":"[^"]+","zonename":"`+uuid+`"`, "-j", uuid)
}

// TestVMControl starts and stops a VM by the command line, with a real vminfod.
func TestVMControl(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("network namespaces and cgroups need root")
	}
	const uuid = "5595d88c-6e4d-4bda-b58e-97dd02e30002"
	dir := t.TempDir()
	cgroups := filepath.Join(filepath.Dir(system.DefaultCgroup()), fmt.Sprintf("rutter-cli-%d", os.Getpid()))
	if err := os.Mkdir(cgroups, 0o755); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = os.Remove(cgroups) })
	zone := fmt.Sprintf("rutter-cli-%d", os.Getpid())
	manifest := fmt.Sprintf(`{"uuid":%q,"zonename":%q,"max_physical_memory":64,"nics":[{"mac":"90:b8:d0:57:53:70"}]}`, uuid, zone)
	if err := os.WriteFile(filepath.Join(dir, uuid+".json"), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	folders := []string{"--manifests", dir, "--vm-run", dir, "--vm-cgroup", cgroups}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- vminfoApp(ctx, newLines(), append([]string{"vminfo", "serve", "--vminfod", address}, folders...)...)
	}()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	control := func(args ...string) (string, error) {
		out := newLines()
		program := &cli.App{Name: "rutter", Commands: []*cli.Command{vmcmd.Command()}, Writer: out, ExitErrHandler: func(*cli.Context, error) {}}
		withoutHelp(program)
		app.Prepare(program.Commands)
		args = append(append([]string{"vm"}, args...), append(folders, "--address", address, "--agent", "off")...)
		err := app.Run(ctx, program, append([]string{"rutter"}, args...))
		return out.String(), err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := vminfoApp(ctx, newLines(), "vminfo", "ping", "--address", address)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	// No agent here gives the VM its NIC. A command that does not come to say so soon after its
	// time, because the machine is busy, is ended without it.
	if _, err := control("start", uuid, "--timeout", "3s"); !errors.Is(err, vmdoc.ErrTimeout) && !errors.As(err, new(*term.TimeoutError)) {
		t.Errorf("start without NICs: got %v, want ErrTimeout", err)
	}
	if out, err := control("start", uuid, "--no-nics"); err != nil || !strings.Contains(out, "runs") {
		t.Fatalf("start: %q, %v", out, err)
	}
	if _, err := control("start", uuid, "--no-nics"); !errors.Is(err, vmrun.ErrRunning) {
		t.Errorf("second start: got %v, want ErrRunning", err)
	}
	if out, err := control("reboot", "-F", "--no-nics", uuid); err != nil || !strings.Contains(out, "was rebooted") {
		t.Errorf("reboot: %q, %v", out, err)
	}
	if out, err := control("stop", uuid); err != nil || !strings.Contains(out, "is stopped") {
		t.Errorf("stop: %q, %v", out, err)
	}
	if _, err := control("stop", uuid); !errors.Is(err, vmrun.ErrNotRunning) {
		t.Errorf("second stop: got %v, want ErrNotRunning", err)
	}
	if _, err := control("stop", "none"); err == nil || !strings.Contains(err.Error(), "no vm is named none") {
		t.Errorf("stop of no name: %v", err)
	}
}

// withoutHelp takes --help from an app and its commands. That flag is one
// variable of the cli package, which two apps must not set at once; the
// program has only one.
func withoutHelp(app *cli.App) {
	var hide func(commands []*cli.Command)
	hide = func(commands []*cli.Command) {
		for _, c := range commands {
			c.HideHelp = true
			hide(c.Subcommands)
		}
	}
	app.HideHelp = true
	hide(app.Commands)
}
