package logcmd

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/archive"
	"rutter/projections/desired"
)

// fabric is a log of two VMs on one fabric, each on its CN.
type fabric struct {
	t       *testing.T
	entries []log.Entry
	hash    log.Hash
	objects map[string]log.Object
	revs    map[string]log.Revision
}

func uuid(n byte) log.UUID { return log.UUID{6: 0x40, 8: 0x80, 15: n} }

func newFabric(t *testing.T) *fabric {
	f := &fabric{t: t, objects: map[string]log.Object{}, revs: map[string]log.Revision{}}
	net := netip.MustParsePrefix
	f.add(
		&log.Network{UUID: uuid(1), Name: "under", NICTag: "external", Subnet: net("192.0.2.0/24"), MTU: 1600},
		&log.Network{UUID: uuid(2), Name: "blue", NICTag: "sdc_overlay", Fabric: true, VNetID: 7, Subnet: net("10.0.0.0/24"), MTU: 1400},
	)
	for i := range byte(2) {
		cn := uuid(10 + i)
		f.add(
			&log.Server{UUID: cn, Hostname: "cn" + string('0'+i), Status: "running"},
			&log.NIC{MAC: log.MAC{2, 1, 5: i}, CNUUID: cn, BelongsToType: "server", BelongsToUUID: cn, NetworkUUID: uuid(1), IP: netip.AddrFrom4([4]byte{192, 0, 2, 1 + i}), Underlay: true, State: "running"},
		)
	}
	return f
}

// vms adds the two VMs, web1 and db1.
func (f *fabric) vms() *fabric {
	for i := range byte(2) {
		f.add(
			&log.VM{UUID: uuid(20 + i), Alias: []string{"web1", "db1"}[i], State: "running", ServerUUID: uuid(10 + i)},
			&log.NIC{MAC: log.MAC{2, 2, 5: i}, CNUUID: uuid(10 + i), BelongsToType: "zone", BelongsToUUID: uuid(20 + i), NetworkUUID: uuid(2), IP: netip.AddrFrom4([4]byte{10, 0, 0, 5 + i}), State: "running"},
		)
	}
	return f
}

// put appends an event. more follow in the same change.
func (f *fabric) put(action log.Action, o log.Object, more uint32) log.Seq {
	f.t.Helper()
	seq := log.Seq(len(f.entries) + 1)
	key := o.Kind().String() + " " + o.ID()
	e := &log.Event{
		Kind: o.Kind(), Action: action, ID: o.ID(), Revision: f.revs[key] + 1, Actor: "napi", Object: o, More: more,
		Time: log.Time(1795251600e9 + int64(seq)*1e6), ChangeID: uuid(200),
	}
	if action == log.Update {
		e.Changed = log.Diff(f.objects[key], o)
	}
	b, err := log.NewEncoder().Event(e)
	if err != nil {
		f.t.Fatal(err)
	}
	f.objects[key] = log.Clone(o)
	f.revs[key]++
	f.hash = f.hash.Next(seq, b)
	f.entries = append(f.entries, log.Entry{Seq: seq, Hash: f.hash, Bytes: b})
	return seq
}

func (f *fabric) add(objects ...log.Object) {
	for _, o := range objects {
		f.put(log.Create, o, 0)
	}
}

func (f *fabric) update(o log.Object) log.Seq { return f.put(log.Update, o, 0) }

// state sets the state of db1.
func (f *fabric) state(state string) log.Seq {
	vm := log.Clone(f.objects["vm "+uuid(21).String()]).(*log.VM)
	vm.State = state
	return f.update(vm)
}

// moved puts the NIC of db1 on another CN, with more events to follow.
func (f *fabric) moved(cn log.UUID, more uint32) log.Seq {
	nic := log.Clone(f.objects["nic 02:02:00:00:00:01"]).(*log.NIC)
	nic.CNUUID = cn
	return f.put(log.Update, nic, more)
}

// fill appends n entries that change nothing between the two.
func (f *fabric) fill(n int) *fabric {
	for i := range n {
		nic := &log.NIC{MAC: log.MAC{2, 3, 0, 0, byte(i >> 8), byte(i)}, CNUUID: uuid(10), BelongsToType: "other", BelongsToUUID: uuid(99), NetworkUUID: uuid(1), State: "running"}
		if _, there := f.objects["nic "+nic.ID()]; !there {
			f.add(nic)
			continue
		}
		nic.State = []string{"stopped", "running"}[len(f.entries)%2]
		f.update(nic)
	}
	return f
}

func (f *fabric) file() string {
	f.t.Helper()
	path := filepath.Join(f.t.TempDir(), "log.rlog")
	file, err := os.Create(path)
	if err != nil {
		f.t.Fatal(err)
	}
	w, err := archive.NewWriter(file, archive.Header{Cluster: log.UUID{9}})
	for _, e := range f.entries {
		if err == nil {
			err = w.Append(e)
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// bisected runs log bisect -o json.
func (f *fabric) bisected(args ...string) (x culprit, err error) {
	f.t.Helper()
	var out strings.Builder
	err = run(f.t.Context(), &out, append([]string{"bisect", "--data", f.file(), "-o", "json"}, args...))
	if err == nil {
		if err := json.Unmarshal([]byte(out.String()), &x); err != nil {
			f.t.Fatalf("%v: %s", err, out.String())
		}
	}
	return x, err
}

// Among 20,000 entries bisect finds the one since which db1 is not reached, with who, when
// and what, and the command that takes it back. A NIC that is put on another CN than its
// VM is one.
func TestBisectReach(t *testing.T) {
	t.Parallel()
	f := newFabric(t).vms().fill(9000)
	bad := f.moved(uuid(10), 0)
	f.fill(11000)
	x, err := f.bisected("--reach", "web1", "db1")
	if err != nil {
		t.Fatal(err)
	}
	if x.Now.Seq != bad || x.Now.Verdict != desired.Unreachable || x.Now.Codes[0] != "nic-elsewhere" || x.Before.Verdict != desired.Reachable || !x.Whole || len(x.Turns) != 3 {
		t.Errorf("want #%d: %+v", bad, x)
	}
	if x.Revert != "rutter log revert "+bad.String() || len(x.Entries) != 1 || x.Entries[0].Event.Actor != "napi" || x.Entries[0].Event.Changed[0].Path != "cn_uuid" {
		t.Errorf("%+v", x)
	}
	text := printedBy(t, "bisect", "--data", f.file(), "--reach", "web1", "10.0.0.6")
	for _, want := range []string{
		"web1 and 10.0.0.6: reachable after #" + (bad - 1).String() + ", unreachable since #" + bad.String(),
		`cn_uuid changed :: "` + uuid(11).String() + `" (cn1) -> "` + uuid(10).String() + `" (cn0)  by napi`,
		"take it back: rutter log revert " + bad.String() + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// The verdict may never have been good, be good at the end, or change several times.
func TestBisectOfOtherHistories(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		make func(f *fabric) (bad log.Seq)
		args []string
		want string // of the error, or of the text
	}{
		{"never reached", func(f *fabric) log.Seq {
			f.vms().state("stopped")
			f.fill(2)
			return 0
		}, []string{"--from", "11"}, "never reached each other from seq 11 to 13: give an earlier --from"},
		{"reaches", func(f *fabric) log.Seq { f.vms(); return 0 }, nil, "web1 and db1 reach each other after seq 10, and did so"},
		{"not there", func(f *fabric) log.Seq { f.fill(3); return 0 }, nil, "are not both in the log"},
		{"flapped, and lost", func(f *fabric) log.Seq {
			f.vms().state("stopped")
			f.state("running")
			return f.state("stopped")
		}, nil, "The verdict changed 5 times:\n"},
		{"flapped, and back", func(f *fabric) log.Seq {
			bad := f.vms().state("stopped")
			f.state("running")
			return bad
		}, nil, "They reach each other again after #12.\n"},
		{"deleted", func(f *fabric) log.Seq {
			f.vms().put(log.Delete, f.objects["nic 02:02:00:00:00:01"], 0)
			return f.put(log.Delete, f.objects["vm "+uuid(21).String()], 0) - 1
		}, nil, "by napi at "},
		{"an entry within a change", func(f *fabric) log.Seq {
			f.vms().fill(1)
			first := f.put(log.Update, f.objects["network "+uuid(2).String()], 2)
			f.moved(uuid(10), 1)
			f.put(log.Update, f.objects["network "+uuid(2).String()], 0)
			return first + 1
		}, nil, "by napi at "},
		{"good within a change only", func(f *fabric) log.Seq {
			f.vms()
			f.moved(uuid(10), 1)
			f.moved(uuid(11), 0)
			return 0
		}, nil, "reach each other after seq 12"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t)
			bad := c.make(f)
			x, err := f.bisected(append(c.args, "--reach", "web1", "db1")...)
			if bad == 0 {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q; %+v", err, c.want, x)
				}
				return
			}
			if err != nil || x.Now.Seq != bad {
				t.Fatalf("%v: #%d, want #%d: %+v", err, x.Now.Seq, bad, x)
			}
			if text := printedBy(t, "bisect", "--data", f.file(), "--reach", "web1", "db1"); !strings.Contains(text, c.want) {
				t.Errorf("%q is missing in\n%s", c.want, text)
			}
		})
	}
}

// --trace finds a change of the verdict that loses no packet.
func TestBisectTrace(t *testing.T) {
	t.Parallel()
	f := newFabric(t).vms().fill(5)
	server := log.Clone(f.objects["server "+uuid(10).String()]).(*log.Server)
	server.Status = "unknown"
	seq := f.update(server)
	f.fill(5)
	if x, err := f.bisected("--trace", "web1", "db1"); err != nil || x.Now.Seq != seq || x.Now.Verdict != desired.Doubtful || x.Now.Codes[0] != "cn-unknown" {
		t.Errorf("%v: %+v", err, x)
	}
	if _, err := f.bisected("--reach", "web1", "db1"); err == nil || !strings.Contains(err.Error(), "reach each other after seq") {
		t.Errorf("--reach: %v", err)
	}
	for _, args := range []string{"--trace --reach web1 db1", "--reach web1", "--reach web1 db1 --kind nic", "--reach web1 db1 --check true", ""} {
		if _, err := f.bisected(strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), "want") && !strings.Contains(err.Error(), "do not go with") {
			t.Errorf("%s: %v", args, err)
		}
	}
}
