package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rutter/agent"
	"rutter/agent/filter"
	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/agent/link/view"
	"rutter/agent/ports"
	"rutter/api/client"
	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/node"
	"rutter/integration/rig"
	"rutter/log"
	"rutter/projections/desired"
)

// traced is a real agent, whose kernel another program changes, and which does not look
// at it again: what it heals, no trace would see.
type traced struct {
	*wholeWay
	zone     netlab.Namespace
	dir      string
	from, to log.MAC
	ip       netip.Addr // of to
}

// newTraced starts it, with the rules of port security or without.
func newTraced(t *testing.T, secured bool) *traced {
	w := &traced{wholeWay: newWholeWayLog(t)}
	w.dir = w.zones(t, w.local)
	cfg, look := link.Config{NetNSDir: w.dir, EtcNetNSDir: filepath.Join(w.dir, "etc")}, view.Config{NetNSDir: w.dir}
	if secured {
		table, err := filter.Open(t.Context())
		if errors.Is(err, filter.ErrUnsupported) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		guard := ports.NewGuard(table)
		guard.SetMode(ports.Mode{Mode: desired.SecurityEnforced, Required: true})
		t.Cleanup(func() { _ = guard.Close() })
		cfg.Filter, look.Security = guard, guard
	}
	kernel, err := link.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := view.New(look)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(kernel.Close(), reader.Close()); err != nil {
			t.Error(err)
		}
	})
	a := rig.Agent(t, agent.Config{
		CN: w.local, Servers: w.c.Client.Servers(), Dialer: w.c.Client, SweepEvery: time.Hour,
		Kernel: node.SystemKernel(kernel, link.ManagerConfig{}, node.Security{Secure: plan.Secure{On: secured, Required: true}}).New, View: reader.Read,
	})
	made, err := w.c.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{w.nic(w.remote, w.vm)}})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); a.Status().Programmed < made.Last; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the kernel does not match seq %d: %+v", made.Last, a.Status().Kernel)
		}
	}
	w.from, _, w.zone = w.nicOn(t, w.local)
	w.to, w.ip, _ = w.nicOn(t, w.remote)
	return w
}

// nicOn returns the NIC of the VM on a CN.
func (w *traced) nicOn(t *testing.T, cn log.UUID) (mac log.MAC, ip netip.Addr, zone netlab.Namespace) {
	t.Helper()
	nics, err := w.c.Client.List(t.Context(), "/nics", map[string][]string{"cn_uuid": {cn.String()}, "belongs_to_type": {"zone"}})
	if err != nil || len(nics) != 1 {
		t.Fatalf("NICs of VMs on %s: %v, %v", cn, nics, err)
	}
	if mac, err = log.ParseMAC(nics[0]["mac"].(string)); err == nil {
		ip, err = netip.ParseAddr(nics[0]["ip"].(string))
	}
	if err != nil {
		t.Fatal(err)
	}
	return mac, ip, netlab.Namespace{Dir: w.dir, Name: nics[0]["belongs_to_uuid"].(string)}
}

// trace asks a server, with a look at the kernels.
func (w *traced) trace(t *testing.T, watch string) (tr desired.Trace) {
	t.Helper()
	query := url.Values{"from": {w.from.String()}, "to": {w.to.String()}, "kernels": {"1"}, "watch_ms": {watch}}
	raw, err := w.c.Client.Raw(t.Context(), http.MethodGet, "/trace?"+query.Encode(), nil)
	if err == nil {
		err = json.Unmarshal(raw, &tr)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.KernelsAsked) != 2 || tr.KernelsAsked[0].View == nil {
		t.Fatalf("kernels: %+v, %v", tr.KernelsAsked, tr.Findings)
	}
	return tr
}

// faults are the faults of the kernels that a trace found.
func faults(tr desired.Trace) (texts []string) {
	for _, f := range tr.Findings {
		if strings.HasPrefix(f.Code, "kernel-") && f.Level == desired.Fault {
			texts = append(texts, f.Text)
		}
	}
	return texts
}

// do changes the kernel as another program does.
func (w *traced) do(t *testing.T, step plan.Step) {
	t.Helper()
	vandal, err := link.Open(link.Config{NetNSDir: w.dir})
	if err != nil {
		t.Fatal(err)
	}
	defer vandal.Close()
	have, err := vandal.Dump(context.Background(), []string{w.zone.Name})
	if err != nil {
		t.Fatal(err)
	}
	if step.Namespace != "" {
		at := slices.IndexFunc(have.Links, func(l plan.Link) bool { return l.MAC == w.from })
		if at < 0 {
			t.Fatalf("no fabric link: %v", have.Links)
		}
		step.Link = have.Links[at].Name
	}
	if errs := vandal.Do(context.Background(), []plan.Step{step}); errs != nil {
		t.Fatal(errors.Join(errs...))
	}
}

// TestTraceNamesTheKernels: rutter trace says what the kernel of a real agent has, and
// names the entry that another program took away, although the log and the agent's
// watermark say that all is well. A CN without an agent is named as not known.
func TestTraceNamesTheKernels(t *testing.T) {
	t.Parallel()
	if !enterLab(t) {
		return
	}
	w := newTraced(t, false)
	tr := w.trace(t, "0")
	v := tr.KernelsAsked[0].View
	if got := faults(tr); got != nil || v.Neighbour == nil || v.Neighbour.MAC != w.to || v.Forward == nil || v.Forward.VTEP.String() != "192.0.2.2" || len(v.Links) != 2 || len(v.Unknown) != 0 {
		t.Errorf("as the log wants it: %v, %+v", got, v)
	}
	if far := tr.KernelsAsked[1]; far.View != nil || !strings.Contains(far.Unknown, w.remote.String()+" does not answer") {
		t.Errorf("a CN without an agent: %+v", far)
	}
	for _, c := range []struct {
		step plan.Step
		want string
	}{
		{plan.Step{Op: plan.OpDelNeigh, Namespace: w.zone.Name, Addr: w.ip}, fmt.Sprintf("the neighbour for %s on CN cn0 is missing", w.ip)},
		{plan.Step{Op: plan.OpSetNeigh, Namespace: w.zone.Name, Addr: w.ip, MAC: log.MAC{2, 0, 0, 0, 0, 9}}, fmt.Sprintf("the neighbour for %s on CN cn0 is 02:00:00:00:00:09, and the log has %s", w.ip, w.to)},
		{plan.Step{Op: plan.OpSetFDB, Link: "sdcvxl7", MAC: w.to, Addr: netip.MustParseAddr("192.0.2.77")}, fmt.Sprintf("the forwarding entry of sdcvxl7 for %s on CN cn0 leads to 192.0.2.77, and the log has 192.0.2.2", w.to)},
		{plan.Step{Op: plan.OpDelFDB, Link: "sdcvxl7", MAC: w.to}, fmt.Sprintf("the forwarding entry of sdcvxl7 for %s on CN cn0 is missing", w.to)},
	} {
		w.do(t, c.step)
		if got := faults(w.trace(t, "0")); !slices.Contains(got, c.want) {
			t.Errorf("after %v: %v, want %q", c.step, got, c.want)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, "trace", w.from.String(), w.to.String(), "--watch", "0s", "-s", w.c.Client.Servers()[0])
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.HasPrefix(string(out), "unreachable: ") || !strings.Contains(string(out), "forwarding entry "+w.to.String()+": none") || !strings.Contains(string(out), "not known: CN "+w.remote.String()+" does not answer") {
		t.Errorf("rutter trace: %v\n%s", err, out)
	}
	w.do(t, plan.Step{Op: plan.OpDelLink, Namespace: w.zone.Name})
	if got := faults(w.trace(t, "0")); len(got) == 0 || !strings.Contains(strings.Join(got, "\n"), "CN cn0 has no fabric link with the MAC "+w.from.String()) {
		t.Errorf("without its link: %v", got)
	}
}

// TestTraceNamesTheDrops: with port security a VM gives its link another MAC. rutter
// trace names that, and the counter that rises while the VM sends: its frames are dropped
// at its port.
func TestTraceNamesTheDrops(t *testing.T) {
	t.Parallel()
	if !enterLab(t) {
		return
	}
	w := newTraced(t, true)
	tr := w.trace(t, "0")
	v := tr.KernelsAsked[0].View
	if got := faults(tr); got != nil || v.Security.Rules == nil || v.Security.Rules.MAC != w.from || v.Security.Peer == nil || !*v.Security.Peer || len(v.Links) != 4 || len(v.Unknown) != 0 {
		t.Errorf("as the log wants it: %v, %+v", got, v)
	}
	if err := w.zone.Do(func() error { return netlab.SetMAC(v.Links[0].Name, log.MAC{2, 0, 0, 0, 0, 9}) }); err != nil {
		t.Fatal(err)
	}
	sending, stop := context.WithCancel(t.Context())
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for sending.Err() == nil {
			_, _ = w.zone.Ping(w.ip, 8, 10*time.Millisecond) // nothing answers
		}
	}()
	defer func() { stop(); <-sent }()
	want := []string{
		fmt.Sprintf("%s on CN cn0 has the MAC 02:00:00:00:00:09, and the NIC %s", v.Links[0].Name, w.from),
		"drops of reason mac at the port of " + w.from.String() + " on CN cn0 rose by ",
	}
	for end := time.Now().Add(time.Minute); ; {
		tr = w.trace(t, "200")
		missing := slices.DeleteFunc(slices.Clone(want), func(text string) bool {
			return slices.ContainsFunc(tr.Findings, func(f desired.Finding) bool { return strings.HasPrefix(f.Text, text) })
		})
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("a trace does not find %q: %+v", missing, tr.Findings)
		}
	}
}
