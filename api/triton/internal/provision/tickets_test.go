package provision

import (
	"fmt"
	"strings"
	"testing"

	"rutter/log"
)

// TestTicketRoom: tickets of one server, and all together, have a bound.
func TestTicketRoom(t *testing.T) {
	b := newBed(t)
	add := func(server log.UUID) {
		t.Helper()
		b.do(&log.Ticket{ServerUUID: server, Scope: "vm", OfID: fmt.Sprint(b.n)}, "id scope server_uuid")
	}
	other := log.UUID{0xc, 15: 2}
	b.do(&log.Server{UUID: other, Hostname: "cn2"}, "hostname uuid")
	room := Room{All: 5, Server: 3}
	for range 3 {
		if err := room.Check(b.state, cn); err != nil {
			t.Fatal(err)
		}
		add(cn)
	}
	if err := room.Check(b.state, cn); err == nil || !strings.Contains(err.Error(), "server_tickets") {
		t.Errorf("a server with 3 tickets: %v", err)
	}
	add(other)
	if err := room.Check(b.state, other); err != nil {
		t.Errorf("another server: %v", err)
	}
	add(other)
	if err := room.Check(b.state, other); err == nil || !strings.Contains(err.Error(), "limit tickets") {
		t.Errorf("5 tickets of all: %v", err)
	}
}
