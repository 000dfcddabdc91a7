package registered

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

var webVM = log.UUID{1, 6: 0x40, 8: 0x80, 15: 1}

func web(keys ...string) Registration {
	r := Registration{Alias: "web0", OwnerUUID: modelOwner, Zonename: "web0", PID: 77}
	for _, key := range keys {
		r.NICs = append(r.NICs, NIC{Key: key, Network: "open"})
	}
	return r
}

func within(d time.Duration) Wait { return Wait{For: WaitNode, Within: d} }

// TestRegistration: a VM and its NIC come in one change, with what its guest needs to know,
// and go again.
func TestRegistration(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	s := m.start(t.TempDir(), newSink())
	defer s.stop()
	r := web("eth0")
	r.NICs[0].Attach = &vmdoc.Attach{Kind: vmdoc.AttachTap, User: 107}
	before := m.seq
	vm, err := s.Put(t.Context(), webVM, r, within(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	nic := vm.NIC("eth0")
	if nic == nil || nic.State != NICAttached || len(nic.IPs) != 1 || nic.IPs[0].Bits() != 24 || nic.MTU != 1400 || nic.Network != "open" ||
		len(nic.Gateways) != 1 || len(nic.Resolvers) != 1 || len(nic.Routes) != 1 || nic.Routes[0].Gateway != netip.MustParseAddr("10.0.0.3") {
		t.Fatalf("got %+v", nic)
	}
	if nic.Device != vmdoc.TapName(nic.MAC) || nic.Kind != vmdoc.AttachTap || m.told[nic.MAC] != (vmdoc.Attach{Kind: vmdoc.AttachTap, Device: nic.Device, User: 107}) {
		t.Errorf("the tap: got %+v, told %+v", nic, m.told)
	}
	if changes := len(m.done); changes != 2 || m.seq == before {
		t.Errorf("%d changes, want the operator's and one", changes)
	}
	until(t, "the VM is shown", func() bool {
		v, ok := s.sink.get(webVM)
		nics, _ := v.Get("nics")
		return ok && v.Text("state") == "running" && len(nics.Items()) == 1
	})
	v, _ := s.sink.get(webVM)
	if got, ok, err := vmdoc.AttachOf(firstNIC(v)); err != nil || !ok || got.Device != nic.Device {
		t.Errorf("attach in the VM: %+v %v %v", got, ok, err)
	}
	if err := s.Delete(t.Context(), webVM); err != nil {
		t.Fatal(err)
	}
	until(t, "the NICs are gone", func() bool { return len(m.nics(webVM)) == 0 })
	until(t, "the file is gone", func() bool { _, err := os.Stat(s.path(webVM)); return os.IsNotExist(err) })
	if _, ok := s.sink.get(webVM); ok {
		t.Error("the VM is shown still")
	}
	if why, ok := m.ended[webVM]; !ok || why != "" {
		t.Errorf("its end: %q %v", why, ok)
	}
	if again, err := s.Put(t.Context(), webVM, web("eth0"), within(time.Minute)); err != nil || len(m.nics(webVM)) != 1 {
		t.Errorf("registered again: %+v, %v", again, err)
	}
}

func firstNIC(v vmdoc.Value) vmdoc.Value {
	nics, _ := v.Get("nics")
	return nics.Items()[0]
}

// TestSameKeySameNIC: a PUT that is repeated, also by another process and after lost answers,
// makes no second NIC.
func TestSameKeySameNIC(t *testing.T) {
	t.Parallel()
	m := newModel(t, 2)
	folder := t.TempDir()
	s := m.start(folder, newSink())
	m.set(func() { m.faulty = true })
	for range 20 {
		_, _ = s.Put(t.Context(), webVM, web("eth0", "eth1"), Wait{Within: 50 * time.Millisecond})
		s.stop()
		s = m.start(folder, newSink())
	}
	m.set(func() { m.faulty = false })
	vm, err := s.Put(t.Context(), webVM, web("eth0", "eth1"), within(time.Minute))
	s.stop()
	for _, arrives := range m.late {
		m.set(arrives)
	}
	if nics := m.nics(webVM); err != nil || len(nics) != 2 || nics[vm.NICs[0].MAC] == nil || nics[vm.NICs[1].MAC] == nil {
		t.Errorf("got %v, %v; the log has %v", vm, err, nics)
	}
}

// TestServersDown: what is new fails in time, what is known succeeds, and what is deleted goes
// later, also after a restart.
func TestServersDown(t *testing.T) {
	t.Parallel()
	m := newModel(t, 3)
	folder, into := t.TempDir(), newSink()
	s := m.start(folder, into)
	if _, err := s.Put(t.Context(), webVM, web("eth0"), within(time.Minute)); err != nil {
		t.Fatal(err)
	}
	m.set(func() { m.down = true })
	if vm, err := s.Put(t.Context(), webVM, web("eth0"), within(time.Minute)); err != nil || vm.NICs[0].State != NICAttached {
		t.Errorf("known: %+v, %v", vm, err)
	}
	other, second := log.UUID{2, 15: 1}, web("eth0")
	second.Zonename = "web1"
	if _, err := s.Put(t.Context(), other, second, Wait{Within: 50 * time.Millisecond}); codeOf(err) != CodeServers {
		t.Errorf("new: got %v, want %s", err, CodeServers)
	}
	if err := s.Delete(t.Context(), webVM); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := s.Delete(t.Context(), other); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := s.Get(webVM); codeOf(err) != CodeUnknown {
		t.Errorf("a deleted one: %v", err)
	}
	s.stop()
	s = m.start(folder, into)
	defer s.stop()
	if _, ok := into.get(webVM); ok || len(m.nics(webVM)) != 1 {
		t.Error("after the restart the VM is shown, or its NIC is gone without a server")
	}
	m.set(func() { m.down = false })
	s.Wake()
	until(t, "the log is told", func() bool { return len(m.nics(webVM))+len(m.nics(other)) == 0 })
	until(t, "the files are gone", func() bool { files, _ := os.ReadDir(folder); return len(files) == 0 })
}

// TestRefusals: what the log refuses is registered no more, and the error says what opens the
// network.
func TestRefusals(t *testing.T) {
	t.Parallel()
	m := newModel(t, 4)
	s := m.start(t.TempDir(), newSink())
	defer s.stop()
	m.set(func() { m.held[otherCN] = "folder"; m.zones = map[string]log.UUID{"db0": otherCN} })
	_, taken := s.Put(t.Context(), log.UUID{9, 15: 9}, Registration{OwnerUUID: modelOwner, Zonename: "a0", NICs: []NIC{{Key: "a", Network: "open", MAC: log.MAC{2, 9}}}}, Wait{})
	if taken != nil {
		t.Fatal(taken)
	}
	closed := web()
	closed.NICs = []NIC{{Key: "eth0", Network: closedNet.String()}}
	for _, c := range []struct {
		name string
		id   log.UUID
		reg  Registration
		code string
		want string
	}{
		{"a network that is not open", webVM, closed, CodeRefused, "rutter network update"},
		{"a network that is not there", webVM, Registration{OwnerUUID: modelOwner, NICs: []NIC{{Key: "a", Network: "nowhere"}}}, CodeRefused, "self_provision"},
		{"no owner", webVM, Registration{}, CodeInvalid, "owner_uuid"},
		{"a VM of another source", otherCN, web("eth0"), CodeOther, "folder"},
		{"no network", webVM, Registration{OwnerUUID: modelOwner, NICs: []NIC{{Key: "a"}}}, CodeInvalid, "network"},
		{"a zonename that leaves the folder", webVM, Registration{OwnerUUID: modelOwner, Zonename: "../x"}, CodeInvalid, "zonename"},
		{"the zonename of a VM of another source", webVM, Registration{OwnerUUID: modelOwner, Zonename: "db0"}, CodeInvalid, "zonename db0 is that of VM " + otherCN.String() + " of folder"},
		{"the zonename of another VM", webVM, Registration{OwnerUUID: modelOwner, Zonename: "a0"}, CodeInvalid, "zonename a0 is that of VM " + log.UUID{9, 15: 9}.String()},
		{"a key that leaves the path", webVM, Registration{OwnerUUID: modelOwner, NICs: []NIC{{Key: "../x", Network: "open"}}}, CodeInvalid, "key"},
		{"two addresses", webVM, Registration{OwnerUUID: modelOwner, NICs: []NIC{{Key: "a", Network: "open", IPs: make([]netip.Addr, 2)}}}, CodeInvalid, "ips"},
		{"a group's MAC", webVM, Registration{OwnerUUID: modelOwner, NICs: []NIC{{Key: "a", Network: "open", MAC: log.MAC{1}}}}, CodeInvalid, "mac"},
		{"another VM's MAC", webVM, Registration{OwnerUUID: modelOwner, NICs: []NIC{{Key: "a", Network: "open", MAC: log.MAC{2, 9}}}}, CodeInvalid, "mac"},
		{"a device with a slash", webVM, Registration{OwnerUUID: modelOwner, NICs: []NIC{{Key: "a", Network: "open", Attach: &vmdoc.Attach{Kind: "tap", Device: "a/b"}}}}, CodeInvalid, "device"},
		{"too many NICs", webVM, web(strings.Fields(strings.Repeat("x ", 0) + numbered(MaxNICs+1))...), CodeInvalid, "nics"},
		{"the gateway's address", webVM, Registration{OwnerUUID: modelOwner, NICs: []NIC{{Key: "a", Network: "open", IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}}}, CodeRefused, "ip"},
	} {
		_, err := s.Put(t.Context(), c.id, c.reg, Wait{Within: time.Minute})
		if codeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %s %v, want %s with %q", c.name, codeOf(err), err, c.code, c.want)
		}
		if _, err := s.Get(c.id); codeOf(err) != CodeUnknown {
			t.Errorf("%s: it is registered: %v", c.name, err)
		}
	}
	if nics := m.nics(webVM); len(nics) != 0 {
		t.Errorf("the log has %v", nics)
	}
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "eth%d ", i)
	}
	return b.String()
}

// TestForgottenChange: a change whose answer was lost, and that the servers have forgotten,
// makes no second NIC.
func TestForgottenChange(t *testing.T) {
	t.Parallel()
	m := newModel(t, 5)
	folder := t.TempDir()
	s := m.start(folder, newSink())
	if _, err := s.Put(t.Context(), webVM, web("eth0"), within(time.Minute)); err != nil {
		t.Fatal(err)
	}
	s.edit(webVM, func(r *record) { r.NICs[0].Held, r.Known = false, false }) // as if the answer was lost
	m.set(func() { m.forgotten[s.recordOf(webVM).NICs[0].Change] = true; clear(m.done) })
	vm, err := s.Put(t.Context(), webVM, web("eth0"), within(time.Minute))
	s.stop()
	if nics := m.nics(webVM); err != nil || len(nics) != 1 || nics[vm.NICs[0].MAC] == nil {
		t.Errorf("got %+v, %v; the log has %v", vm, err, nics)
	}
}

// TestDuplicateStandsAside: a VM that another source has is aside with its reason, and is
// taken over when the other lets it go.
func TestDuplicateStandsAside(t *testing.T) {
	t.Parallel()
	m, into := newModel(t, 6), newSink()
	s := m.start(t.TempDir(), into)
	defer s.stop()
	into.mu.Lock()
	into.foreign[webVM] = true
	into.mu.Unlock()
	if _, err := s.Put(t.Context(), webVM, web("eth0"), within(time.Minute)); err != nil {
		t.Fatal(err)
	}
	until(t, "it is aside", func() bool {
		a := s.Status().Aside
		return len(a) == 1 && a[0].UUID == webVM && strings.Contains(a[0].Reason, "folder has")
	})
	into.mu.Lock()
	delete(into.foreign, webVM)
	into.mu.Unlock()
	s.Scan()
	until(t, "it is taken over", func() bool { _, ok := into.get(webVM); return ok && len(s.Status().Aside) == 0 })
}

// TestDamagedFile: a damaged file is put aside and named, takes nothing away, and ends with a
// new registration.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	m := newModel(t, 7)
	folder, into := t.TempDir(), newSink()
	s := m.start(folder, into)
	if _, err := s.Put(t.Context(), webVM, web("eth0"), within(time.Minute)); err != nil {
		t.Fatal(err)
	}
	s.stop()
	path := filepath.Join(folder, webVM.String()+".json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text[:len(text)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also the second start says it
		s = m.start(folder, newSink())
		until(t, "it runs", func() bool { return s.Status().Complete })
		st := s.Status()
		if !st.Listed || len(st.Aside) != 1 || st.Aside[0].UUID != webVM || len(m.nics(webVM)) != 1 {
			t.Errorf("got %+v; the log has %v", st, m.nics(webVM))
		}
		s.stop()
	}
	strange := filepath.Join(folder, "strange.json")
	if err := os.WriteFile(strange, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = m.start(folder, newSink())
	until(t, "it runs", func() bool { return s.Status().State != "stopped" })
	if st := s.Status(); st.Lists() {
		t.Errorf("a file that may be about each VM takes none for gone: %+v", st)
	}
	s.stop()
	if err := os.Remove(strange + damagedSuffix); err != nil {
		t.Fatal(err)
	}
	s = m.start(folder, newSink())
	defer s.stop()
	if _, err := s.Put(t.Context(), webVM, web("eth0"), within(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(folder, "*")); len(s.Status().Aside) != 0 || len(files) != 1 {
		t.Errorf("aside %v, files %v", s.Status().Aside, files)
	}
}

// TestKernelIsLate: a PUT that waits for a kernel which does not have the NIC fails in time
// with the reason, and what was done stays.
func TestKernelIsLate(t *testing.T) {
	t.Parallel()
	m := newModel(t, 8)
	s := m.start(t.TempDir(), newSink())
	defer s.stop()
	mac := log.MAC{2, 1, 1, 1, 1, 1}
	m.set(func() { m.waits[mac] = "no namespace web0" })
	r := web("eth0")
	r.NICs[0].MAC = mac
	_, err := s.Put(t.Context(), webVM, r, within(50*time.Millisecond))
	e, _ := err.(*Error)
	if codeOf(err) != CodeWaiting || !strings.Contains(err.Error(), "no namespace web0") || e.VM == nil || e.VM.NIC("eth0").State != NICWaiting {
		t.Fatalf("got %v", err)
	}
	m.set(func() { delete(m.waits, mac) })
	if vm, err := s.Put(t.Context(), webVM, Registration{}, within(time.Minute)); err != nil || vm.NICs[0].MAC != mac || len(m.nics(webVM)) != 1 {
		t.Errorf("got %+v, %v", vm, err)
	}
}

// TestRandomHistories: whatever is registered and removed, and whatever is lost, late or
// killed meanwhile, at the end the log has the NICs that are registered, and no others.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			history(t, seed)
		})
	}
}

func history(t *testing.T, seed uint64) {
	m := newModel(t, seed)
	random := rand.New(rand.NewPCG(seed, 3))
	folder := t.TempDir()
	s := m.start(folder, newSink())
	ids := []log.UUID{{1, 15: 1}, {1, 15: 2}, {1, 15: 3}}
	m.set(func() { m.faulty = true })
	for range 80 {
		id := ids[random.IntN(len(ids))]
		key := fmt.Sprint("eth", random.IntN(3))
		switch random.IntN(8) {
		case 0, 1, 2:
			r := web(key)
			if random.IntN(4) > 0 {
				r.NICs[0].MAC = log.MAC{2, id[15], 0, 0, 0, key[3]}
			}
			r.Zonename = id.String()
			_, _ = s.Put(t.Context(), id, r, Wait{Within: 20 * time.Millisecond})
		case 3:
			_ = s.DeleteNIC(t.Context(), id, key)
		case 4:
			_ = s.Delete(t.Context(), id)
		case 5: // the agent is killed, and begins again
			s.stop()
			s = m.start(folder, newSink())
		case 6:
			m.set(func() { m.down = !m.down })
		case 7:
			m.set(func() {
				for _, arrives := range m.late {
					arrives()
				}
				m.late = nil
			})
		}
	}
	m.set(func() { m.faulty, m.down = false, false })
	s.Wake()
	until(t, "all is told", func() bool { return s.Status().Waiting == 0 })
	m.set(func() {
		for _, arrives := range m.late {
			arrives()
		}
	})
	s.stop()
	for _, id := range ids {
		want := make(map[log.MAC]bool)
		if r := s.recordOf(id); r != nil {
			for i := range r.NICs {
				want[r.NICs[i].MAC] = true
			}
		}
		nics := m.nics(id)
		for mac := range nics {
			if !want[mac] {
				t.Errorf("seed %d: the log has NIC %s of VM %s, which is not registered", seed, mac, id)
			}
		}
		for mac := range want {
			if nics[mac] == nil {
				t.Errorf("seed %d: NIC %s of VM %s is registered, and not in the log", seed, mac, id)
			}
		}
	}
}

// TestNICOfAnotherNode: a node deletes no NIC that has come to another node, also where no
// certificate keeps it from that: neither with its registration, nor alone, nor by a deletion
// that was on its way when the NIC moved, nor after a restart.
func TestNICOfAnotherNode(t *testing.T) {
	t.Parallel()
	for _, insecure := range []bool{false, true} {
		m := newModel(t, 1)
		m.insecure = insecure
		folder := t.TempDir()
		s := m.start(folder, newSink())
		vm, err := s.Put(t.Context(), webVM, web("eth0", "eth1"), within(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		move := func(to log.UUID) {
			m.operator(log.Op{Action: log.Update, Kind: log.KindVM, ID: webVM.String(), Set: []string{"server_uuid"}, Object: &log.VM{ServerUUID: to}})
			for _, n := range vm.NICs {
				m.operator(log.Op{Action: log.Update, Kind: log.KindNIC, ID: n.MAC.String(), Set: []string{"cn_uuid"}, Object: &log.NIC{CNUUID: to}})
			}
		}
		m.set(func() { m.down = true })
		if err := s.DeleteNIC(t.Context(), webVM, "eth1"); err != nil {
			t.Fatal(err)
		}
		s.edit(webVM, func(r *record) { // it was sent, and comes late
			r.NICs[1].Delete, r.NICs[1].DeleteSeq = m.newID(), m.seq
		})
		move(otherCN)
		if err := s.Delete(t.Context(), webVM); err != nil {
			t.Fatal(err)
		}
		s.stop()
		m.set(func() { m.down = false })
		s = m.start(folder, newSink())
		until(t, "the registration is gone", func() bool { files, _ := os.ReadDir(folder); return len(files) == 0 })
		s.stop()
		if nics := m.nics(webVM); len(nics) != 2 {
			t.Errorf("insecure %t: the log has %v, want both on the other node", insecure, nics)
		}
	}
}

// TestAwayAndBack: that a VM moved to another node is on disk. One that runs here again has
// the log asked for its NICs, which it may hold here already.
func TestAwayAndBack(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	folder := t.TempDir()
	s := m.start(folder, newSink())
	if _, err := s.Put(t.Context(), webVM, web("eth0"), within(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := s.Away(webVM, true); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s = m.start(folder, newSink())
	defer s.stop()
	if vm, err := s.Get(webVM); err != nil || !vm.Away {
		t.Errorf("after a restart: %+v, %v", vm, err)
	}
	vm, err := s.Put(t.Context(), webVM, Registration{State: StateRunning}, within(time.Minute))
	if err != nil || vm.Away || len(vm.NICs) != 1 || len(m.nics(webVM)) != 1 {
		t.Fatalf("it is back: %+v, %v", vm, err)
	}
	if err := s.Away(webVM, true); err != nil {
		t.Fatal(err)
	}
	m.operator(log.Op{Action: log.Update, Kind: log.KindVM, ID: webVM.String(), Set: []string{"server_uuid"}, Object: &log.VM{ServerUUID: otherCN}})
	m.operator(log.Op{Action: log.Update, Kind: log.KindNIC, ID: vm.NICs[0].MAC.String(), Set: []string{"cn_uuid"}, Object: &log.NIC{CNUUID: otherCN}})
	if _, err := s.Put(t.Context(), webVM, Registration{State: StateRunning}, within(time.Minute)); codeOf(err) != CodeRefused {
		t.Errorf("it runs here, and the log has it on another node: got %v, want %s", err, CodeRefused)
	}
}

// TestGoneAlready: a NIC that something else of the node deletes at the same time is gone, and
// nothing is said against that.
func TestGoneAlready(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	folder := t.TempDir()
	var said bytes.Buffer // read when the source has ended
	m.logger = slog.New(slog.NewTextHandler(&said, nil))
	s := m.start(folder, newSink())
	vm, err := s.Put(t.Context(), webVM, web("eth0"), within(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	m.set(func() { m.down = true })
	if err := s.Delete(t.Context(), webVM); err != nil {
		t.Fatal(err)
	}
	s.edit(webVM, func(r *record) { // it is on its way
		r.NICs[0].Delete, r.NICs[0].DeleteSeq = m.newID(), m.seq
	})
	m.operator(log.Op{Action: log.Delete, Kind: log.KindNIC, ID: vm.NICs[0].MAC.String()})
	m.set(func() { m.down = false })
	until(t, "the registration is gone", func() bool { files, _ := os.ReadDir(folder); return len(files) == 0 })
	s.stop()
	if text := said.String(); strings.Contains(text, "stays in the log") {
		t.Errorf("the node's log says: %s", text)
	}
}
