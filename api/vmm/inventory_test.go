package vmm

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/feed"
)

func inventoryVM(vm *log.VM) feed.InventoryVM {
	b, err := log.NewEncoder().Object(vm)
	if err != nil {
		panic(err)
	}
	return feed.InventoryVM{UUID: vm.UUID, Object: b}
}

// whole sends the set in one frame, or in two.
func whole(l *Conn, vms ...*log.VM) {
	var items []feed.InventoryVM
	for _, vm := range vms {
		items = append(items, inventoryVM(vm))
	}
	if len(items) < 2 {
		l.Report(&feed.Inventory{Number: 1, Whole: true, First: true, Last: true, VMs: items})
		return
	}
	l.Report(&feed.Inventory{Number: 1, Whole: true, First: true, VMs: items[:1]})
	l.Report(&feed.Inventory{Number: 2, Whole: true, Last: true, VMs: items[1:]})
}

func vm(n int, state string) *log.VM {
	return &log.VM{UUID: testUUID(n), OwnerUUID: testUUID(9), Alias: fmt.Sprint("web", n), State: state, ServerUUID: testCN, Quota: 10}
}

// vms is what the log has of VMs: "uuid's number state quota at CN's number".
func (c *central) vms() (list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rec := range c.state.List(log.KindVM) {
		o := rec.Object.(*log.VM)
		list = append(list, fmt.Sprintf("%s %s %d at %s", strings.TrimLeft(o.UUID.String()[24:], "0"), o.State, o.Quota, strings.TrimLeft(o.ServerUUID.String()[24:], "0")))
	}
	return list
}

func TestInventory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := alone(t, nil)
		nic := func(n int, vm log.UUID) *log.NIC {
			return &log.NIC{MAC: log.MAC{2, 5: byte(n)}, BelongsToType: "zone", BelongsToUUID: vm, OwnerUUID: testUUID(9), CNUUID: testCN, NICTag: "admin"}
		}
		elsewhere := vm(0x27, "running")
		elsewhere.ServerUUID = testUUID(0xbb)
		c.create(t, &log.NICTag{Name: "admin", UUID: testUUID(50), MTU: 1500})
		c.create(t, vm(0x20, "running"), vm(0x21, "running"), vm(0x22, "running"), vm(0x23, "provisioning"), vm(0x24, "stopped"), elsewhere, nic(1, testUUID(0x22)))
		events := c.count()
		defer run(s)()
		line := s.Connect(testCN, false, nil)
		same, changed, hidden, moved, ownerless := vm(0x20, "running"), vm(0x21, "stopped"), vm(0x24, "stopped"), vm(0x27, "stopped"), vm(0x28, "running")
		same.CreateTimestamp, same.OwnerUUID = 7, log.UUID{} // ours count
		hidden.DoNotInventory = true
		ownerless.OwnerUUID = log.UUID{}
		line.Report(&feed.Inventory{Number: 1, VMs: []feed.InventoryVM{inventoryVM(vm(0x29, "running"))}}) // before a whole set
		whole(line, same, changed, vm(0x25, "running"), hidden, moved, ownerless)
		settle()
		// 20 is equal, 21 was changed, 22 has a NIC, 23 is to come, 24 is hidden,
		// 25 is new, 27 runs elsewhere, 28 is refused and keeps no other out.
		want := []string{"20 running 10 at 1", "21 stopped 10 at 1", "22 destroyed 10 at 1", "23 provisioning 10 at 1", "25 running 10 at 1", "27 running 10 at bb"}
		if got := c.vms(); !slices.Equal(got, want) {
			t.Errorf("after the whole set\n got %q\nwant %q", got, want)
		}
		if n := c.count() - events; n != 4 {
			t.Errorf("%d events, want 4", n)
		}
		events = c.count()
		whole(line, same, changed, vm(0x25, "running"), hidden, moved)
		time.Sleep(time.Minute) // two sweeps
		if n := c.count() - events; n != 0 {
			t.Errorf("the same set made %d events", n)
		}
		// Increments.
		grown, arrived := vm(0x21, "running"), vm(0x27, "running")
		grown.Quota = 20
		grown.OwnerUUID = testUUID(10) // the log knows whose it is
		line.Report(&feed.Inventory{Number: 3, VMs: []feed.InventoryVM{inventoryVM(grown), inventoryVM(arrived), inventoryVM(vm(0x23, "running")), {UUID: testUUID(0x25)}}})
		line.Report(&feed.Inventory{Number: 4, VMs: []feed.InventoryVM{{UUID: testUUID(0x23)}, {UUID: testUUID(0x2a), Object: []byte{9}}}})
		settle()
		want = []string{"20 running 10 at 1", "21 running 20 at 1", "22 destroyed 10 at 1", "27 running 10 at 1"}
		if got := c.vms(); !slices.Equal(got, want) {
			t.Errorf("after increments\n got %q\nwant %q", got, want)
		}
		if r, _ := c.state.Get(log.KindVM, testUUID(0x21).String()); r.Object.(*log.VM).OwnerUUID == grown.OwnerUUID {
			t.Error("a report has changed whose a VM is")
		}
		// A late word of an older connection is put right at the next look.
		c.create(t, vm(0x25, "running"))
		time.Sleep(31 * time.Second)
		if got := c.vms(); !slices.Equal(got, want) {
			t.Errorf("after a late word\n got %q\nwant %q", got, want)
		}
		line.Close()
		whole(line, vm(0x20, "stopped")) // of a connection that has ended
		settle()
		if got := c.vms(); !slices.Equal(got, want) {
			t.Errorf("after the connection\n got %q\nwant %q", got, want)
		}
	})
}

// Whatever is lost between a server and the log, and however often a CN
// connects anew, the log ends with what the CN has.
func TestInventoryConverges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		synctest.Test(t, func(*testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			c := newCentral()
			var calm atomic.Bool
			losing := rand.New(rand.NewPCG(seed, 2)) // under the log's lock
			c.lose = func() (before, after bool) {
				return !calm.Load() && losing.IntN(4) == 0, !calm.Load() && losing.IntN(4) == 0
			}
			var services []*Service
			for range 2 {
				f := newFollower(c)
				s, err := New(Config{Store: f, NewID: newID})
				if err != nil {
					panic(err)
				}
				services = append(services, s)
				defer run(s)()
			}
			has := map[int]*log.VM{}
			var line *Conn
			for range 30 {
				n := 0x20 + random.IntN(8)
				has[n] = vm(n, []string{"running", "stopped"}[random.IntN(2)])
				item := inventoryVM(has[n])
				if random.IntN(3) == 0 {
					delete(has, n)
					item.Object = nil
				}
				if line == nil || random.IntN(4) == 0 {
					line = services[random.IntN(2)].Connect(testCN, false, nil) // the older one is still there
					whole(line, slices.Collect(maps.Values(has))...)
				} else {
					line.Report(&feed.Inventory{VMs: []feed.InventoryVM{item}})
				}
				time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
			}
			calm.Store(true)
			for _, s := range services {
				if l := s.conn(testCN); l != nil && l != line {
					l.Close()
				}
			}
			time.Sleep(2 * time.Minute)
			var want []string
			for _, n := range slices.Sorted(maps.Keys(has)) {
				want = append(want, fmt.Sprintf("%x %s 10 at 1", n, has[n].State))
			}
			if got := c.vms(); !slices.Equal(got, want) {
				rt.Errorf("got %q\nwant %q", got, want)
			}
		})
	})
}

// namedPeers are servers of which one has the newest session of every CN.
type namedPeers struct {
	Peers
	self   string
	newest *atomic.Value
}

func (p namedPeers) Self() string  { return p.self }
func (p namedPeers) Leading() bool { return false }
func (p namedPeers) Where(context.Context, log.UUID) (string, error) {
	return p.newest.Load().(string), nil
}

// linesToTwo connects the CN to two servers, a and b; newest says which of them
// the leader knows to have its newest connection.
func linesToTwo(t *testing.T, c *central, newest *atomic.Value) (lines []*Conn) {
	t.Helper()
	for _, name := range []string{"a", "b"} {
		s, err := New(Config{Store: newFollower(c), NewID: newID, Peers: namedPeers{self: name, newest: newest}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(run(s))
		lines = append(lines, s.Connect(testCN, false, nil))
	}
	return lines
}

// What comes late on an older connection, at another server, is not written; if
// the leader does not know yet who has the newest, it waits.
func TestInventoryIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var newest atomic.Value
		newest.Store("")
		c := newCentral()
		lines := linesToTwo(t, c, &newest)
		whole(lines[0], vm(0x21, "running"), vm(0x22, "running"))
		time.Sleep(10 * time.Second)
		if got := c.vms(); got != nil {
			t.Errorf("got %q, want nothing: no server is known to have the newest connection", got)
		}
		newest.Store("a")
		settle()
		newest.Store("b")
		whole(lines[1], vm(0x21, "stopped"))
		settle()
		events := c.count()
		whole(lines[0], vm(0x21, "running"), vm(0x22, "running"))
		time.Sleep(2 * time.Minute)
		if got, want := c.vms(), []string{"21 stopped 10 at 1"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := c.count(); got != events {
			t.Errorf("%d events came of an older connection", got-events)
		}
	})
}

// A CN comes to another server, of which the leader has not heard yet: what it
// says there is written as soon as the leader knows, not with the next sweep.
func TestInventoryOfAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var newest atomic.Value
		newest.Store("a")
		c := newCentral()
		lines := linesToTwo(t, c, &newest)
		whole(lines[0], vm(0x21, "running"))
		settle()
		whole(lines[1])
		time.Sleep(againAfter / 2)
		newest.Store("b")
		time.Sleep(2 * againAfter)
		if got := c.vms(); len(got) != 0 {
			t.Errorf("got %q, want nothing: the newest connection has no VM", got)
		}
	})
}

// That only the time of the last change differs is no change.
func TestLastModifiedAloneIsNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := alone(t, nil)
		defer run(s)()
		line := s.Connect(testCN, false, nil)
		one := vm(0x21, "running")
		one.LastModified = 1000
		whole(line, one)
		settle()
		before := c.count()
		one.LastModified = 2000
		line.Report(&feed.Inventory{VMs: []feed.InventoryVM{inventoryVM(one)}})
		settle()
		if got := c.count(); got != before {
			t.Errorf("%d events for a time", got-before)
		}
		one.LastModified, one.Quota = 3000, 11
		line.Report(&feed.Inventory{VMs: []feed.InventoryVM{inventoryVM(one)}})
		settle()
		events := c.of(log.KindVM, one.UUID)
		if got := events[len(events)-1].Object.(*log.VM); got.LastModified != 3000 || c.count() != before+1 {
			t.Errorf("got %+v after %d events", got, c.count()-before)
		}
	})
}

// TestInventoryOfAMigration: while a VM migrates, both CNs have it. It stays on the one with
// the newer VMM, whatever the other one reports, until that VMM has ended.
func TestInventoryOfAMigration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := alone(t, nil)
		defer run(s)()
		line := s.Connect(testCN, false, nil)
		one, other := vm(0x21, "running"), testUUID(0x77)
		whole(line, one)
		settle()
		change := func(o log.Object, set ...string) {
			t.Helper()
			id, _ := newID()
			op := log.Op{Action: log.Update, Kind: o.Kind(), ID: o.ID(), Set: set, Object: o}
			if r, err := c.propose(&log.Change{ID: id, Ops: []log.Op{op}}); err != nil || r.Refusal != nil {
				t.Fatal(err, r.Refusal)
			}
		}
		c.create(t, &log.VMM{UUID: testVMM, InstanceID: one.UUID, SledID: testCN, State: "running", Gen: 1})
		placed := &log.VMM{UUID: testUUID(0x99), InstanceID: one.UUID, SledID: other, State: "creating", Gen: 1}
		c.create(t, placed)
		change(&log.VM{UUID: one.UUID, ServerUUID: other}, "server_uuid")
		report := func(want string) {
			t.Helper()
			one.Quota++
			line.Report(&feed.Inventory{VMs: []feed.InventoryVM{inventoryVM(one)}})
			settle()
			if got := c.vms(); len(got) != 1 || got[0] != want {
				t.Errorf("the log has %v, want %s", got, want)
			}
		}
		report("21 running 10 at 77")
		placed.State, placed.Gen = "running", 1
		change(placed, "gen", "state")
		report("21 running 10 at 77")
		placed.State, placed.Gen = "failed", 2
		change(placed, "gen", "state")
		report("21 running 13 at 1")
	})
}
