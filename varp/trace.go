package varp

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// Bounds of a trace for each connection.
const (
	// traceMaxBody is the longest body in bytes that is accepted as one: portolan sends
	// LOG_ACKs of any requested length, but no client requests more than this.
	traceMaxBody = 1 << 20
	// traceMaxOpen is how many requests without an answer are remembered.
	traceMaxOpen = 4096
	// traceMaxHex is how many unknown bytes are printed.
	traceMaxHex = 64
)

// trace parses the two directions of a connection and pairs each answer with its
// request.
type trace struct {
	s    *Snoop
	peer net.Addr

	mu       sync.Mutex // protects what follows
	requests stream
	answers  stream
	open     map[uint32][]tracedRequest // requests without an answer, by id, the oldest first
	openN    int
}

// tracedRequest is a request that has no answer yet.
type tracedRequest struct {
	op   Op
	text string
	at   time.Time
}

// stream cuts one direction into messages.
type stream struct {
	buf []byte
	raw bool // where a message begins is no longer known
}

func newTrace(s *Snoop, peer net.Addr) *trace {
	return &trace{s: s, peer: peer, open: make(map[uint32][]tracedRequest)}
}

// snoopTime formats a time for the trace.
func snoopTime(at time.Time) string { return at.Format("15:04:05.000000") }

func snoopLine(peer net.Addr, format string, args ...any) string {
	return fmt.Sprintf("%s %s %s\n", snoopTime(time.Now()), peer, fmt.Sprintf(format, args...))
}

// request handles bytes that the client sent at a time.
func (t *trace) request(b []byte, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests.cut(b, func(m Message, note string) {
		text := describeRequest(m) + note
		if t.openN >= traceMaxOpen {
			t.line(at, "%s  (no answer will be shown: %d are awaited)", heading(m.Op, m.ID, text), t.openN)
			return
		}
		t.open[m.ID] = append(t.open[m.ID], tracedRequest{m.Op, text, at})
		t.openN++
	}, func(why string, b []byte) { t.line(at, "> %s", describeUnexpected(why, b)) })
}

// answer handles bytes that the server sent.
func (t *trace) answer(b []byte, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers.cut(b, func(m Message, note string) {
		text, more := describeAnswer(m)
		text += note
		of := t.open[m.ID]
		if len(of) == 0 {
			t.line(at, "%s -> %s  (nobody asked)%s", heading(m.Op, m.ID, ""), text, more)
			return
		}
		if t.open[m.ID] = of[1:]; len(of) == 1 {
			delete(t.open, m.ID)
		}
		t.openN--
		t.line(at, "%s -> %s  %s%s", heading(of[0].op, m.ID, of[0].text), text, elapsed(at.Sub(of[0].at)), more)
	}, func(why string, b []byte) { t.line(at, "< %s", describeUnexpected(why, b)) })
}

// end prints the unanswered requests, in order.
func (t *trace) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for _, s := range []*stream{&t.requests, &t.answers} {
		if len(s.buf) > 0 && !s.raw {
			t.line(now, "%s", describeUnexpected("cut off", s.buf))
		}
	}
	if t.openN > 0 {
		t.line(now, "closed, %d requests without an answer", t.openN)
		return
	}
	t.line(now, "closed")
}

func (t *trace) line(at time.Time, format string, args ...any) {
	t.s.printLine(fmt.Sprintf("%s %s %s\n", snoopTime(at), t.peer, fmt.Sprintf(format, args...)))
}

// heading is the part of a line about the request. Ids are opaque, and printed as the
// bytes on the wire.
func heading(op Op, id uint32, question string) string {
	return strings.TrimRight(fmt.Sprintf("%-8s id %08x  %s", op, id, question), " ")
}

func elapsed(d time.Duration) string { return d.Round(time.Microsecond).String() }

// describeUnexpected prints bytes that are not a message.
func describeUnexpected(why string, b []byte) string {
	rest := ""
	if len(b) > traceMaxHex {
		rest = "…"
	}
	return fmt.Sprintf("%s, %d bytes: %x%s", why, len(b), b[:min(len(b), traceMaxHex)], rest)
}

// cut passes complete messages to whole, with a note if something is wrong with one,
// and other bytes to bad. A wrong CRC is only noted: the length was probably right, and
// if not, the next message shows it.
func (s *stream) cut(b []byte, whole func(m Message, note string), bad func(why string, b []byte)) {
	if s.raw {
		bad("not SVP any more", b)
		return
	}
	s.buf = append(s.buf, b...)
	rest := s.buf
	for {
		m, n, err := Split(rest, traceMaxBody)
		note := ""
		switch {
		case errors.Is(err, ErrBadCRC):
			n, note = HeaderSize+len(m.Body), "  (wrong CRC)"
		case err != nil:
			bad(fmt.Sprintf("a length of %d", m.Size), rest)
			s.raw, s.buf = true, nil
			return
		case n == 0:
			s.buf = append(s.buf[:0], rest...)
			return
		}
		if m.Version != Version {
			note += fmt.Sprintf("  (version %d)", m.Version)
		}
		whole(m, note)
		rest = rest[n:]
	}
}

// describeRequest prints the body of a request as text.
func describeRequest(m Message) string {
	switch m.Op {
	case OpPing:
		return ""
	case OpVL2Req:
		if r, err := ParseVL2Req(m.Body); err == nil {
			return fmt.Sprintf("vnet %d %s", r.VNet, r.MAC)
		}
	case OpVL3Req:
		if r, err := ParseVL3Req(m.Body); err == nil {
			return fmt.Sprintf("vnet %d %s type %#x", r.VNet, r.IP, r.Type)
		}
	case OpLogReq:
		if r, err := ParseLogReq(m.Body); err == nil {
			return fmt.Sprintf("of %s, %d bytes at most", r.CN, r.Count)
		}
	case OpLogRM:
		if ids, err := ParseLogRM(m.Body, nil); err == nil {
			return fmt.Sprintf("%d records", len(ids))
		}
	case OpShoot:
		if r, err := ParseShootdown(m.Body); err == nil {
			return fmt.Sprintf("vnet %d %s", r.VNet, r.MAC)
		}
	}
	return describeUnexpected("not understood", m.Body)
}

// describeAnswer prints the body of an answer as text; more are lines of their own, if
// there are any, each after a line break.
func describeAnswer(m Message) (text, more string) {
	switch m.Op {
	case OpPong:
		return fmt.Sprintf("PONG of version %d", m.Version), ""
	case OpVL2Ack:
		if a, err := ParseVL2Ack(m.Body); err == nil {
			return a.Status.String() + describeUnderlay(a.Status, a.Underlay), ""
		}
	case OpVL3Ack:
		if a, err := ParseVL3Ack(m.Body); err == nil && a.Status == StatusOK {
			return a.Status.String() + " " + a.MAC.String() + describeUnderlay(a.Status, a.Underlay), ""
		} else if err == nil {
			return a.Status.String(), ""
		}
	case OpLogAck:
		if status, records, err := ParseLogAck(m.Body, nil); err == nil {
			for _, r := range records {
				more += "\n    " + describeRecord(r)
			}
			return fmt.Sprintf("%s, %d records in %d bytes", status, len(records), len(m.Body)), more
		}
	case OpLogRMAck:
		if status, err := ParseLogRMAck(m.Body); err == nil {
			return status.String(), ""
		}
	}
	return m.Op.String() + " " + describeUnexpected("not understood", m.Body), ""
}

func describeUnderlay(status Status, u Underlay) string {
	if status != StatusOK {
		return ""
	}
	return fmt.Sprintf(" at %s port %d", u.Addr, u.Port)
}

func describeRecord(r Record) string {
	if r.Type == RecordVL2 {
		return fmt.Sprintf("VL2 vnet %d %s  %s", r.VNet, r.MAC, r.ID)
	}
	return fmt.Sprintf("VL3 vnet %d vlan %d %s  %s", r.VNet, r.VLAN, r.IP, r.ID)
}
