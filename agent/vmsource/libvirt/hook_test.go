package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource/registered"
	"rutter/log"
)

// recorder is a Registrar that remembers, and answers with err.
type recorder struct {
	err  error
	puts []registered.Registration
	wait []registered.Wait
}

func (r *recorder) Put(_ context.Context, id log.UUID, put registered.Registration, wait registered.Wait) (registered.VM, error) {
	if id != goldenUUID {
		return registered.VM{}, fmt.Errorf("the VM is %s, want the domain's UUID", id)
	}
	r.puts, r.wait = append(r.puts, put), append(r.wait, wait)
	return registered.VM{}, r.err
}

// run runs one operation, and returns what was said.
func (r *recorder) run(t *testing.T, op string, xml io.Reader) (said string, err error) {
	t.Helper()
	h := Hook{Agent: r, Owner: log.UUID{9}, Within: 10 * time.Second, Say: func(format string, args ...any) { said += fmt.Sprintf(format, args...) + "\n" }}
	err = h.Run(t.Context(), []string{goldenName, op, "begin", "-"}, xml)
	return said, err
}

// TestHookRegisters: each operation of the real libvirt registers the domain as it is then,
// and only prepare waits for links.
func TestHookRegisters(t *testing.T) {
	for op, want := range map[string]struct{ state, wait string }{
		"prepare":   {registered.StateRunning, registered.WaitNode},
		"started":   {registered.StateRunning, registered.WaitNone},
		"reconnect": {registered.StateRunning, registered.WaitNone},
		"stopped":   {registered.StateStopped, registered.WaitNone},
		"migrate":   {},
		"restore":   {},
	} {
		r := &recorder{}
		text := string(golden(t, op+".xml"))
		said, err := r.run(t, op, strings.NewReader(text))
		if want.state == "" {
			if err != nil || len(r.puts) != 0 || said != "" {
				t.Errorf("%s: %v, %+v, said %q, want nothing", op, err, r.puts, said)
			}
			continue
		}
		if err != nil || len(r.puts) != 1 {
			t.Errorf("%s: %v, %+v, want one", op, err, r.puts)
			continue
		}
		p := r.puts[0]
		if p.State != want.state || r.wait[0].For != want.wait || p.Alias != goldenName || p.OwnerUUID.String() != "930896af-bf8c-48d4-885c-6573a94b1853" || p.RAM != 128 || p.VCPUs != 1 {
			t.Errorf("%s: %+v, waiting for %+v", op, p, r.wait[0])
		}
		front := registered.NIC{Key: p.NICs[0].MAC.String(), Network: "front", MAC: p.NICs[0].MAC, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.50")}, Primary: true, Attach: &vmdoc.Attach{Kind: vmdoc.AttachTap, Device: "web0-front"}}
		if len(p.NICs) != 3 || !reflect.DeepEqual(p.NICs[0], front) {
			t.Errorf("%s: NICs %+v", op, p.NICs)
		}
		if op == "prepare" && (!strings.Contains(said, "otherstap") || !strings.Contains(said, "type user") || r.wait[0].Within >= 10*time.Second) {
			t.Errorf("prepare said %q, and waits %s", said, r.wait[0].Within)
		}
	}
}

// TestHookRefusesAtPrepareOnly: what is wrong stops a domain before it runs, with what to
// do, and never one that runs: libvirt would kill it.
func TestHookRefusesAtPrepareOnly(t *testing.T) {
	text := string(golden(t, "prepare.xml"))
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"no agent":   {fmt.Errorf("%w at /run/rutter/agent.sock", registered.ErrNoAgent), "systemctl start rutter-agent"},
		"too late":   {context.DeadlineExceeded, "rutter agent status"},
		"refused":    {&registered.Error{Code: registered.CodeRefused, Message: "no network front"}, "no network front"},
		"no servers": {&registered.Error{Code: registered.CodeServers, Message: "no server answered"}, "no server answered"},
	} {
		r := &recorder{err: c.err}
		if _, err := r.run(t, opPrepare, strings.NewReader(text)); !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		for _, op := range []string{"start", opStarted, opStopped, "release", opReconnect, opAttach, "migrate", "restore", "newly-invented"} {
			if _, err := r.run(t, op, strings.NewReader(text)); err != nil {
				t.Errorf("%s, %s: %v", name, op, err)
			}
			if said, err := r.run(t, op, strings.NewReader("<domain>")); err != nil || said != "" && !strings.Contains(said, op) {
				t.Errorf("%s of no domain: %v, said %q", op, err, said)
			}
		}
	}
	r := &recorder{}
	if _, err := r.run(t, opPrepare, strings.NewReader(minimal(metadata(`<r:nic dev="b"/>`), ""))); !errors.Is(err, ErrNoDomain) {
		t.Errorf("metadata that name no interface: %v", err)
	}
}

// TestHookLeavesOthersAlone: a domain without an interface of ours starts, whatever it has,
// also while nothing of ours runs.
func TestHookLeavesOthersAlone(t *testing.T) {
	r := &recorder{err: registered.ErrNoAgent}
	for name, xml := range map[string]string{
		"none":                minimal("", ""),
		"another's tap":       minimal("", tap("52:54:00:00:00:01", "a")),
		"a bridge":            minimal("", `<interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='b'/></interface>`),
		"what we cannot read": strings.Replace(minimal("", ""), "KiB", "furlong", 1),
		"too many interfaces": minimal("", strings.Repeat(tap("52:54:00:00:00:01", "a"), MaxInterfaces+1)),
	} {
		if _, err := r.run(t, opPrepare, strings.NewReader(xml)); err != nil || len(r.puts) != 0 {
			t.Errorf("%s: %v, %+v", name, err, r.puts)
		}
	}
}

// TestHookIsBounded: an agent that takes no connection, and a libvirt that does not end the
// XML, hold up the hook no longer than it may take.
func TestHookIsBounded(t *testing.T) {
	endless, end := io.Pipe()
	defer end.Close()
	h := Hook{Agent: &registered.Client{Source: SourceName, Socket: filepath.Join(t.TempDir(), "no.sock")}, Within: 50 * time.Millisecond, Say: t.Logf}
	if err := h.Run(t.Context(), []string{"a", opPrepare, "begin", "-"}, endless); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("XML without end: %v", err)
	}
	if err := h.Run(t.Context(), []string{"a", "release", "end", "-"}, endless); err != nil {
		t.Errorf("at release: %v", err)
	}
	h.Within = DefaultWithin
	if err := h.Run(t.Context(), []string{"a", opPrepare, "begin", "-"}, strings.NewReader(string(golden(t, "prepare.xml")))); !errors.Is(err, registered.ErrNoAgent) {
		t.Errorf("no agent: %v", err)
	}
	if err := h.Run(t.Context(), []string{"a"}, strings.NewReader("")); err == nil {
		t.Error("one argument is taken")
	}
}
