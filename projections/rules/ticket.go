package rules

import (
	"fmt"

	"rutter/log"
	"rutter/projections"
)

const (
	maxLine           = 1024 // tickets that wait for one thing
	defaultTicketTime = 3600 // seconds
)

var ticketRules = hooks[*log.Ticket]{
	fill:   fillTicket,
	settle: settleTicket,
	check:  checkTicket,
	follow: followTicket,
}

func fillTicket(d *draft, t *log.Ticket, _ *log.Op) {
	t.Created, t.Updated = d.time, d.time
	if t.Expires == 0 {
		t.Expires = d.time + defaultTicketTime*second
	}
	if t.Expires <= d.time {
		d.bad("expires_at", fmt.Sprintf("%s is over", t.Expires), "send a time to come, or leave it out for an hour")
	}
	if t.Status != "" && t.Status != log.TicketQueued {
		d.bad("status", "a new ticket is queued", "leave it out")
	}
	if !t.ServerUUID.IsZero() || !triton(d) { // CNAPI's default server is the zero UUID
		needServer(d, t.ServerUUID)
	}
	t.Status, t.Place = log.TicketActive, 1
	waiting := 0
	for o := range d.Objects(projections.TicketsBeside(t)) {
		t.Status, t.Place = log.TicketQueued, max(t.Place, o.(*log.Ticket).Place+1)
		waiting++
	}
	if waiting >= maxLine {
		d.bad("id", fmt.Sprintf("%d tickets wait for it", waiting), "wait until some are released")
	}
}

// settleTicket: a ticket ends once, and its turn comes by itself.
func settleTicket(d *draft, before, after *log.Ticket, _ *log.Op) {
	if before == nil || log.Equal(before, after) {
		return
	}
	if !before.Waits() {
		d.refuse(log.CodePreconditionFailed, fmt.Sprintf("ticket %s is %s", before.UUID, before.Status))
		return
	}
	if after.Waits() && after.Status != before.Status {
		d.bad("status", fmt.Sprintf("a ticket becomes %s by itself", d.show(after.Status)), "release the one before it")
	}
	after.Updated = d.time
}

func checkTicket(d *draft, _, t *log.Ticket, _ *log.Op) {
	for _, f := range []struct{ name, text string }{{"scope", t.Scope}, {"id", t.OfID}} {
		if f.text == "" {
			d.missing(f.name, "say what the ticket is for")
		}
		d.checkText(f.name, f.text)
	}
	switch t.Status {
	case log.TicketQueued, log.TicketActive, log.TicketFinished, log.TicketExpired:
	default:
		d.bad("status", fmt.Sprintf("\"%s\" is not known", d.show(t.Status)), "send finished to release it")
	}
	d.checkText("action", t.Action)
	d.checkText("reqid", t.ReqID)
	d.checkJSON("extra", t.Extra, projections.MaxFieldJSON, 0)
}

// followTicket makes the event that follows from one on a ticket: the next of those
// that wait has its turn when the active one left.
func followTicket(d *draft, before, after *log.Ticket, _ *log.Op) {
	if before == nil || before.Status != log.TicketActive || after != nil && after.Waits() {
		return
	}
	var next *log.Ticket
	for o := range d.Objects(projections.TicketsBeside(before)) {
		t := o.(*log.Ticket)
		if t.UUID != before.UUID && (next == nil || t.Place < next.Place) {
			next = t
		}
	}
	if next == nil {
		return
	}
	r, _ := d.ByUUID(log.KindTicket, next.UUID)
	turned := log.Clone(next).(*log.Ticket)
	turned.Status, turned.Updated = log.TicketActive, d.time
	d.emit(r, turned)
}
