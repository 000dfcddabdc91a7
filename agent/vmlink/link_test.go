package vmlink

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"rutter/agent/vminfo"
	"rutter/agent/vminfo/manifests"
	"rutter/agent/vminfo/vmmstate"
	"rutter/agent/vminfo/vmrun"
	"rutter/agent/vmsource"
	"rutter/log"
	"rutter/log/feed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds each wait of a test.
const patience = time.Minute

func id(n int) log.UUID {
	u, err := log.ParseUUID(fmt.Sprintf("5595d88c-6e4d-4bda-b58e-%012x", n))
	if err != nil {
		panic(err)
	}
	return u
}

// fakeLog is the node's part of the log.
type fakeLog struct {
	mu      sync.Mutex // protects objects
	objects map[string]log.Object
}

func (f *fakeLog) Object(kind log.Kind, name string) (log.Object, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, ok := f.objects[kind.String()+name]
	return o, ok
}

// VMsHere implements State.
func (f *fakeLog) VMsHere() (vms []log.UUID, complete bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.objects {
		if vm, is := o.(*log.VM); is && vm.ServerUUID == id(1) {
			vms = append(vms, vm.UUID)
		}
	}
	return vms, true
}

func (f *fakeLog) put(o log.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects[o.Kind().String()+o.ID()] = o
}

// fakeServers notes what it is asked, and answers as told.
type fakeServers struct {
	asked chan string

	mu     sync.Mutex // protects answer
	answer func(method, path string) error
}

func (f *fakeServers) Raw(_ context.Context, method, path string, _ []byte) (json.RawMessage, error) {
	f.mu.Lock()
	answer := f.answer
	f.mu.Unlock()
	f.asked <- method + " " + path
	return nil, answer(method, path)
}

// idle is a Starter that starts no VM.
type idle struct{}

func (idle) Start(context.Context, log.UUID) error      { return vmrun.ErrNoVM }
func (idle) Stop(context.Context, log.UUID, bool) error { return nil }

// node is a compute node of a test, over a folder of manifests.
type node struct {
	t         *testing.T
	manifests string
	more      []vmsource.Source // beside the folder
	service   *vminfo.Service
	vmms      *vmmstate.Table
	link      *Link
	stop      func()
	servers   *fakeServers
	log       *fakeLog
}

func newNode(t *testing.T) *node {
	t.Helper()
	return newNodeOn(t, t.TempDir(), &fakeLog{objects: make(map[string]log.Object)})
}

// newNodeOn is a node over what another one left in dir, and the log has.
func newNodeOn(t *testing.T, dir string, known *fakeLog) *node {
	t.Helper()
	n := &node{t: t, log: known}
	n.servers = &fakeServers{asked: make(chan string, 100), answer: func(string, string) error { return nil }}
	n.make(dir)
	return n
}

// make makes the parts of a node over dir.
func (n *node) make(dir string) {
	t := n.t
	t.Helper()
	n.manifests = filepath.Join(dir, "manifests")
	folder, err := manifests.New(manifests.Config{Manifests: n.manifests, PIDs: dir, NetNS: dir, Cgroup: dir, Machines: dir})
	if err != nil {
		t.Fatal(err)
	}
	if n.service, err = vminfo.New(vminfo.Config{Sources: append([]vmsource.Source{folder}, n.more...)}); err != nil {
		t.Fatal(err)
	}
	if n.vmms, err = vmmstate.New(vmmstate.Config{
		Folder: filepath.Join(dir, "vmms"), Store: n.service.Store(), Ready: n.service.Ready(), Starter: idle{},
		Ring: func(id log.UUID) { n.link.Ring(id) },
	}); err != nil {
		t.Fatal(err)
	}
	if n.link, err = New(Config{CN: id(1), Service: n.service, VMMs: n.vmms, Servers: n.servers, RingMin: 20 * time.Millisecond, RingMax: 50 * time.Millisecond, PartAfter: time.Hour}); err != nil {
		t.Fatal(err)
	}
}

// run runs the node until the test ends.
func (n *node) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{
		func(ctx context.Context) error { return n.service.Run(ctx, nil) }, n.vmms.Run,
		func(ctx context.Context) error { return n.link.Run(ctx, n.log) },
	} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				n.t.Error(err)
			}
		})
	}
	n.stop = func() {
		cancel()
		running.Wait()
	}
	n.t.Cleanup(n.stop)
}

func (n *node) write(vm int, fields string) {
	n.t.Helper()
	path := filepath.Join(n.manifests, id(vm).String()+".json")
	if err := errors.Join(os.MkdirAll(n.manifests, 0o755), os.WriteFile(path+".new", fmt.Appendf(nil, `{"uuid":%q%s}`, id(vm), fields), 0o644), os.Rename(path+".new", path)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) wait(want string) {
	n.t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case got := <-n.servers.asked:
			if got == want {
				return
			}
		case <-deadline:
			n.t.Fatalf("nobody asked %s; status %+v", want, n.link.Status())
		}
	}
}

// server is the other end of a connection: what the node sends.
type server struct {
	conn   net.Conn
	frames chan feed.Message
	end    func()
}

// connect gives the node a connection to a server whose program is of before FeatureTriton.
func (n *node) connect() *server { return n.connectTo(0) }

// connectTo gives the node a connection to a server whose program knows a feature version.
func (n *node) connectTo(knows uint32) *server {
	n.t.Helper()
	ours, theirs := net.Pipe()
	conn := feed.NewConn(theirs)
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{conn: ours, frames: make(chan feed.Message, 1000)}
	var running sync.WaitGroup
	running.Go(func() {
		_ = conn.Follow(ctx, &feed.Hello{CN: id(1)}, asking{n, ctx, conn}) // it ends with ctx
	})
	running.Go(func() {
		r := feed.NewReader(bufio.NewReader(ours))
		for {
			f, err := r.Next()
			if err != nil {
				return
			}
			if m, err := feed.Decode(f); err == nil {
				s.frames <- m
			}
		}
	})
	s.end = func() {
		cancel()
		ours.Close()
		running.Wait()
	}
	n.t.Cleanup(s.end)
	if knows > 0 {
		frame, err := feed.Append(nil, &feed.Welcome{Version: feed.Version, Knows: knows})
		if err == nil {
			_, err = ours.Write(frame)
		}
		if err != nil {
			n.t.Fatal(err)
		}
		for deadline := time.Now().Add(patience); conn.Knows() != knows; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				n.t.Fatal("the welcome does not come")
			}
		}
	}
	n.link.Connected(ctx, conn)
	return s
}

// asking hands on requests only.
type asking struct {
	*node
	ctx  context.Context
	conn *feed.Conn
}

func (a asking) Welcome(*feed.Welcome) error           { return nil }
func (a asking) Reset(*feed.Reset) error               { return nil }
func (a asking) Entry(*feed.Entry) error               { return nil }
func (a asking) Object(*feed.Object) error             { return nil }
func (a asking) ScopeBegin(*feed.ScopeBegin) error     { return nil }
func (a asking) ScopeEnd(*feed.ScopeEnd) error         { return nil }
func (a asking) ScopeDropped(*feed.ScopeDropped) error { return nil }
func (a asking) Bookmark(*feed.Bookmark) error         { return nil }

func (a asking) Request(m *feed.Request) error {
	a.link.Request(a.ctx, a.conn, m)
	return nil
}

// next returns the next frame of a kind.
func next[M feed.Message](t *testing.T, s *server) M {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case m := <-s.frames:
			if want, ok := m.(M); ok {
				return want
			}
		case <-deadline:
			t.Fatalf("no %T came", *new(M))
		}
	}
}

// A ring goes through the connection, then over HTTP until the log has the state.
func TestRings(t *testing.T) {
	n := newNode(t)
	n.run()
	if _, err := n.vmms.Register(id(50), id(7)); err != nil {
		t.Fatal(err)
	}
	doorbell := "POST /vmms/" + id(50).String() + "/doorbell?cn=" + id(1).String()
	n.wait(doorbell) // without a connection
	s := n.connect()
	if _, err := n.vmms.Unregister(id(50)); err != nil {
		t.Fatal(err)
	}
	if ring := next[*feed.Ring](t, s); len(ring.VMMs) != 1 || ring.VMMs[0] != id(50) {
		t.Errorf("rang for %v", ring.VMMs)
	}
	n.wait(doorbell) // nothing came of it
	n.servers.mu.Lock()
	n.servers.answer = func(method, _ string) error {
		if method == http.MethodPost {
			return &log.Refusal{Code: log.CodeResourceNotFound, Message: "no such path"}
		}
		return nil
	}
	n.servers.mu.Unlock()
	n.wait("PUT /vmms/" + id(50).String()) // a server of before the doorbell
	held, err := n.vmms.Get(id(50))
	if err != nil {
		t.Fatal(err)
	}
	n.log.put(&log.VMM{UUID: id(50), InstanceID: id(7), SledID: id(1), State: "destroyed", Gen: held.Gen})
	n.link.Advanced()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, err := n.vmms.Get(id(50)); errors.Is(err, vmmstate.ErrNoVMM) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a final state that the log has is still kept")
		}
	}
}

// The first state of a VMM that an operator has placed is rung for, although the log has its
// generation: what was placed is no state that the node told.
func TestRingForWhatWasPlaced(t *testing.T) {
	n := newNode(t)
	if _, err := n.vmms.Register(id(50), id(7)); err != nil {
		t.Fatal(err)
	}
	n.log.put(&log.VMM{UUID: id(50), InstanceID: id(7), SledID: id(1), State: "creating", Gen: 1})
	n.run()
	n.wait("POST /vmms/" + id(50).String() + "/doorbell?cn=" + id(1).String())
}

// A state that the log has is not rung for, also after a restart of the agent.
func TestNoRingForWhatIsRecorded(t *testing.T) {
	n := newNode(t)
	if _, err := n.vmms.Register(id(50), id(7)); err != nil {
		t.Fatal(err)
	}
	n.log.put(&log.VMM{UUID: id(50), State: "starting", Gen: 1})
	n.run()
	for deadline := time.Now().Add(patience); n.link.Status().Unrecorded > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not see that the log has it")
		}
	}
	if calls := n.link.Status().Calls; calls > 0 {
		t.Errorf("%d calls", calls)
	}
}

// Requests of servers are answered as those at the node's own port.
func TestAnswers(t *testing.T) {
	n := newNode(t)
	n.run()
	if _, err := n.vmms.Register(id(50), id(7)); err != nil {
		t.Fatal(err)
	}
	s := n.connect()
	for i, test := range []struct {
		method, path, version, body string
		status                      uint16
		want                        string
	}{
		{"GET", "/vmms/" + id(50).String() + "/state", "2.0.0", "", 200, `"instance_id":"` + id(7).String()},
		{"GET", "/vmms/" + id(50).String() + "/state", "1.0.0", "", 200, `"state":"starting"`},
		{"GET", "/vmms/" + id(50).String() + "/state", "", "", 400, "api-version"},
		{"GET", "/vmms/" + id(51).String() + "/state", "1.0.0", "", 404, "NO_SUCH_INSTANCE"},
		{"PUT", "/vmms/" + id(50).String() + "/state", "1.0.0", `{"state":{"type":"fly"}}`, 400, "migration_target"},
		{"GET", "http://[", "1.0.0", "", 400, "parse"},
	} {
		b, err := feed.Append(nil, &feed.Request{Number: uint64(i + 1), Method: test.method, Path: test.path, Version: test.version, Body: []byte(test.body)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.conn.Write(b); err != nil {
			t.Fatal(err)
		}
		if got := next[*feed.Response](t, s); got.Number != uint64(i+1) || got.Status != test.status || !strings.Contains(string(got.Body), test.want) {
			t.Errorf("%s %s: got %d %d %s, want %d with %s", test.method, test.path, got.Number, got.Status, got.Body, test.status, test.want)
		}
	}
}

// The whole set at each connection, then what changes.
func TestInventory(t *testing.T) {
	n := newNode(t)
	n.write(1, `,"owner_uuid":"930896af-bf8c-48d4-885c-6573a94b1853","quota":10,"tags":{"role":"web"}`)
	n.write(2, "") // it has no owner
	n.write(3, "") // as little, but the log knows whose it is
	if err := os.WriteFile(filepath.Join(n.manifests, id(4).String()+".json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, vm := range []int{3, 4} {
		n.log.put(&log.VM{UUID: id(vm), ServerUUID: id(1), OwnerUUID: id(900), Zonename: id(vm).String(), State: "stopped"})
	}
	n.run()
	s := n.connect()
	m := next[*feed.Inventory](t, s)
	if !m.Whole || !m.First || !m.Last || len(m.VMs) != 3 {
		t.Fatalf("got %+v, want the whole set of 3 VMs: 1, 3, and 4, whose manifest cannot be read", m)
	}
	vm := decoded(t, m, id(1))
	if vm.Quota != 10 || vm.State != "stopped" || vm.ServerUUID != id(1) || vm.Zonename != id(1).String() {
		t.Errorf("got %+v", vm)
	}
	if vm := decoded(t, m, id(3)); vm.OwnerUUID != id(900) {
		t.Errorf("got %+v, want the owner that the log has", vm)
	}
	decoded(t, m, id(4))
	if refused := n.link.Status().Refused; len(refused) != 1 || !strings.Contains(refused[0], "owner_uuid is missing") {
		t.Errorf("refused %q", refused)
	}
	n.write(1, `,"owner_uuid":"930896af-bf8c-48d4-885c-6573a94b1853","quota":20`)
	if m := next[*feed.Inventory](t, s); m.Whole || decoded(t, m, id(1)).Quota != 20 || m.Number != 2 {
		t.Errorf("got %+v", m)
	}
	if err := os.Remove(filepath.Join(n.manifests, id(1).String()+".json")); err != nil {
		t.Fatal(err)
	}
	if m := next[*feed.Inventory](t, s); len(m.VMs) != 1 || len(m.VMs[0].Object) > 0 {
		t.Errorf("got %+v, want that the VM is gone", m)
	}
	s.end()
	if m := next[*feed.Inventory](t, n.connect()); !m.Whole || len(m.VMs) != 2 || m.Number != 1 {
		t.Errorf("the next connection got %+v", m)
	}
}

func decoded(t *testing.T, m *feed.Inventory, want log.UUID) *log.VM {
	t.Helper()
	for _, vm := range m.VMs {
		if vm.UUID != want {
			continue
		}
		o, err := log.DecodeObject(log.KindVM, vm.UUID.String(), vm.Object)
		if err != nil {
			t.Fatal(err)
		}
		return o.(*log.VM)
	}
	t.Fatalf("%v is not in %+v", want, m)
	return nil
}

// Where the folder of manifests is not there, no VM is taken for gone: the first
// report comes when it is.
func TestNoInventoryWithoutFolder(t *testing.T) {
	n := newNode(t)
	n.run()
	s := n.connect()
	for deadline := time.Now().Add(patience); !strings.HasPrefix(n.link.Status().Inventory, "waiting: a source"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("status %+v", n.link.Status())
		}
	}
	n.write(1, `,"owner_uuid":"930896af-bf8c-48d4-885c-6573a94b1853"`)
	for {
		if m := next[*feed.Inventory](t, s); m.Whole {
			if len(m.VMs) != 1 {
				t.Errorf("got %+v", m)
			}
			return
		}
	}
}

// Many VMs come in several frames, which are one set.
func TestInventoryFrames(t *testing.T) {
	list := make([]feed.InventoryVM, 3*feed.MaxInventory)
	for i := range list {
		list[i] = feed.InventoryVM{UUID: id(i), Object: make([]byte, 300)}
	}
	frames := 0
	for rest := list; len(rest) > 0; frames++ {
		n := count(rest)
		if _, err := feed.Append(nil, &feed.Inventory{VMs: rest[:n]}); err != nil || n == 0 {
			t.Fatalf("a frame of %d: %v", n, err)
		}
		rest = rest[n:]
	}
	if frames != 3 {
		t.Errorf("%d frames", frames)
	}
	big := []feed.InventoryVM{{Object: make([]byte, 2*inventoryBytes)}, {Object: make([]byte, 10)}}
	if n := count(big); n != 1 {
		t.Errorf("a large one goes with %d", n)
	}
}

// TestProperties: a node reports VMAPI's other fields of its VMs, to servers that know
// them only; no metadata unless it may; and what is too large is left out and named.
func TestProperties(t *testing.T) {
	n := newNode(t)
	n.write(2, `,"owner_uuid":"`+id(9).String()+`","alias":"a","brand":"kvm","tags":{"role":"web"},"billing_id":"b","disks":[{"size":10}],"init":["/x"],"root":"/x","autoboot":false,"nics":[{"mac":"90:b8:d0:00:00:02","interface":"net0","kernel_ips":["10.9.9.9/24"]}],"customer_metadata":{"password":"secret"},"internal_metadata":{"a":"secret"}`)
	n.write(3, `,"owner_uuid":"`+id(9).String()+`","tags":{"large":"`+strings.Repeat("x", log.MaxNodeProperties)+`","small":"y"},"dns_domain":"d"`)
	n.run()
	reported := func(knows uint32) map[log.UUID]*log.VM {
		s := n.connectTo(knows)
		defer s.end()
		vms := map[log.UUID]*log.VM{}
		for len(vms) < 2 {
			select {
			case m := <-s.frames:
				inventory, is := m.(*feed.Inventory)
				if !is {
					continue
				}
				for _, said := range inventory.VMs {
					o, err := log.DecodeObject(log.KindVM, said.UUID.String(), said.Object)
					if err != nil {
						t.Fatal(err)
					}
					vms[said.UUID] = o.(*log.VM)
				}
			case <-time.After(patience):
				t.Fatalf("no inventory; status %+v", n.link.Status())
			}
		}
		return vms
	}
	for _, vm := range reported(log.FeatureTriton - 1) {
		if vm.Properties != "" {
			t.Errorf("a program that does not know properties gets %s", vm.Properties)
		}
	}
	vms := reported(log.FeatureTriton)
	text := vms[id(2)].Properties
	for _, has := range []string{`"tags":{"role":"web"}`, `"billing_id":"b"`, `"disks":[{"size":10}]`, `"autoboot":false`, `"interface":"net0"`} {
		if !strings.Contains(text, has) {
			t.Errorf("%s is not in %s", has, text)
		}
	}
	for _, has := range []string{"secret", "init", "root", "alias", "kernel_ips"} {
		if strings.Contains(text, `"`+has) {
			t.Errorf("%s is in %s", has, text)
		}
	}
	large := vms[id(3)].Properties
	if len(large) > log.MaxNodeProperties || !strings.Contains(large, `"dns_domain":"d"`) || !strings.Contains(large, `"small":"y"`) || !strings.Contains(large, `"rutter_left_out":["tags.large"]`) {
		t.Errorf("%d bytes: %.200s", len(large), large)
	}
	if left := n.link.Status().LeftOut; len(left) != 1 || !strings.Contains(left[0], "tags.large") {
		t.Errorf("the status says %q", left)
	}
	n.link.cfg.Metadata = true
	if text := reported(log.FeatureTriton)[id(2)].Properties; !strings.Contains(text, `"customer_metadata":{"password":"secret"}`) {
		t.Errorf("with metadata: %s", text)
	}
}
