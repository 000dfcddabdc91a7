package varp

import (
	"bytes"
	"net/netip"
	"testing"

	"rutter/log"
)

// TestServerLog: LOG_RM counts for the node that asked on its connection, the
// peer's own address if none did, and a log that fails is FATAL.
func TestServerLog(t *testing.T) {
	events := vectorEvents(t)
	_, addr := startServer(t, Config{Lookup: vectorFixture(), Events: events})
	nc := dialTCP(t, addr)
	rm := AppendLogRM(nil, 1, []log.UUID{eventID(5)})
	write(t, nc, rm)
	readMessage(t, nc)
	write(t, nc, LogReq{Count: 1024, CN: events.cn}.Append(nil, 2))
	_, records, err := ParseLogAck(readMessage(t, nc).Body, nil)
	if err != nil || len(records) != 27 || records[1] != events.records[1] {
		t.Errorf("%d records, error %v, want 27", len(records), err)
	}
	write(t, nc, rm)
	readMessage(t, nc)
	events.mu.Lock()
	events.broken = true
	want := []netip.Addr{netip.MustParseAddr("127.0.0.1"), events.cn}
	if len(events.by) != 2 || events.by[0] != want[0] || events.by[1] != want[1] {
		t.Errorf("removed by %v, want %v", events.by, want)
	}
	events.mu.Unlock()

	write(t, nc, append(LogReq{Count: 1024, CN: events.cn}.Append(nil, 3), rm...))
	if got := readMessage(t, nc).Body; !bytes.Equal(got, []byte{0, 0, 0, 1}) {
		t.Errorf("LOG_ACK of a broken log: %x, want FATAL alone", got)
	}
	if got := readMessage(t, nc).Body; !bytes.Equal(got, []byte{0, 0, 0, 1}) {
		t.Errorf("LOG_RM_ACK of a broken log: %x, want FATAL", got)
	}
}

// TestServerLogCount: no LOG_ACK is longer than requested, except for the status that
// cannot be left out, and none is longer than MaxBody.
func TestServerLogCount(t *testing.T) {
	events := vectorEvents(t)
	for len(events.records) < 1000 {
		events.records = append(events.records, events.records[:60]...)
	}
	_, addr := startServer(t, Config{Lookup: vectorFixture(), Events: events})
	nc := dialTCP(t, addr)
	for _, count := range []uint32{0, 3, 4, 31, 35, 36, 79, 80, 1023, 1024, MaxBody, MaxBody + 1, 1 << 31, 1<<32 - 1} {
		write(t, nc, LogReq{Count: count, CN: events.cn}.Append(nil, count))
		m := readMessage(t, nc)
		if limit := min(max(count, statusSize), MaxBody); len(m.Body) > int(limit) {
			t.Errorf("count %d: body of %d bytes", count, len(m.Body))
		}
		if count >= 36 && len(m.Body) < statusSize+recordVL2Size {
			t.Errorf("count %d: body of %d bytes, want at least one record", count, len(m.Body))
		}
	}
}
