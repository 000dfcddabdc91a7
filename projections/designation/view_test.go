package designation

import (
	"fmt"
	"testing"

	"rutter/log"
	"rutter/projections"
)

// TestSearchInSlices: a search holds the state for one slice of servers at a time, so that
// changes are applied during it; here one is after each view.
func TestSearchInSlices(t *testing.T) {
	const servers = 5*slice + 1
	c := newCloud(t)
	for i := range servers {
		c.server(i+1, nil)
		c.vm(i+1, i+1, ownerB, 1024, nil)
	}
	views, most, inside := 0, 0, false
	view := func(fn func(*projections.State)) {
		if inside {
			t.Fatal("a view within a view: a server that waits to apply a change would wait for ever")
		}
		inside = true
		fn(c.State)
		inside = false
		views++
		c.vm(10_000+views, 1+views%servers, ownerB, 1, nil)
	}
	d := Standard()
	if got := Allocate(view, &Memo{}, &d, request(t, `,"ram":1024,"quota":10`, "", "")); got.Server == nil {
		t.Errorf("no server: %+v", got.Steps)
	}
	if views < servers/slice {
		t.Errorf("VMs of %d servers were read in %d views", servers, views)
	}
	views = 0
	if capacities, why, _ := Capacities(view, &Memo{}, &d, nil); len(capacities) != servers || views < servers/slice {
		t.Errorf("%d capacities in %d views, without %v", len(capacities), views, why)
	}
	eachLoad(func(fn func(*projections.State)) { views = 0; fn(c.State) }, servers, func(int) log.UUID { views++; most = max(most, views); return cn(1) }, func([]*log.VM) {})
	if most > slice {
		t.Errorf("the VMs of %d servers were read in one view", most)
	}
}

// TestTicketsOfOneServer: each VM that tickets of a server announce stands once among those
// that wait, found by its UUID: adding up takes no longer than there are VMs and tickets.
func TestTicketsOfOneServer(t *testing.T) {
	const tickets, vms = 3000, 1000
	c := newCloud(t)
	c.server(1, nil)
	for i := range tickets {
		c.put(&log.Ticket{
			UUID: uuidOf(0xcc, i+1), ServerUUID: cn(1), Scope: ticketScope, Action: ticketAction, OfID: vm(i%vms + 1).String(), Status: log.TicketQueued,
			Extra: fmt.Sprintf(`{"owner_uuid":%q,"max_physical_memory":%d}`, ownerA, 1+i/vms),
		})
	}
	c.vm(1, 1, ownerA, 4, func(v *log.VM) { v.State = "provisioning" })
	open := ticketsOf(ViewOf(c.State))
	if w := open.vms[cn(1)]; w == nil || len(w.list) != vms || len(w.at) != vms || open.n != tickets {
		t.Fatalf("%d tickets: %+v wait", open.n, w)
	}
	var p promised
	eachLoad(ViewOf(c.State), 1, func(int) log.UUID { return cn(1) }, func(on []*log.VM) {
		p = new(Memo).load(on, cn(1), log.UUID{}, &open)
	})
	if p.count != vms || p.ram != vms-1+4 {
		t.Errorf("promised %+v", p)
	}
}
