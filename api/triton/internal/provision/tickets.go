package provision

import (
	"fmt"

	"rutter/log"
	"rutter/projections"
)

// Room bounds tickets.
type Room struct {
	All    int // in the log, those that have ended too
	Server int // of one server; those of the whole cloud count as one server's
}

// TicketRoom are the bounds of the log.
var TicketRoom = Room{log.MaxTickets, log.MaxServerTickets}

// Check returns why there is no room for one more ticket of a server, or nil. Requests at
// the same time may each find the last place: the bounds are of memory, and not exact.
func (r Room) Check(state *projections.State, server log.UUID) error {
	if n := state.Count(log.KindTicket); n >= r.All {
		return fmt.Errorf("there are %d tickets, the most that there may be (limit tickets): release some, or wait until they expire", n)
	}
	n := 0
	for range state.TicketsOn(server) {
		if n++; n >= r.Server {
			return fmt.Errorf("the server has %d tickets, the most that it may have (limit server_tickets): release some, or wait until they expire", n)
		}
	}
	return nil
}
