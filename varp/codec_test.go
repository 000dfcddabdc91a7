package varp

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

// Generators of what the codec carries.
var (
	genMAC  = rapid.Custom(func(t *rapid.T) log.MAC { return log.MAC(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "mac")) })
	genUUID = rapid.Custom(func(t *rapid.T) log.UUID { return log.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid")) })
	genAddr = rapid.Custom(func(t *rapid.T) netip.Addr {
		if rapid.Bool().Draw(t, "v4") {
			return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "ipv4")))
		}
		return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "ipv6"))).Unmap()
	})
	genUnderlay = rapid.Custom(func(t *rapid.T) Underlay { return Underlay{genAddr.Draw(t, "addr"), rapid.Uint16().Draw(t, "port")} })
	genRecord   = rapid.Custom(func(t *rapid.T) Record {
		r := Record{Type: RecordVL2, ID: genUUID.Draw(t, "id"), VNet: rapid.Uint32().Draw(t, "vnet")}
		if rapid.Bool().Draw(t, "vl3") {
			r.Type, r.IP, r.VLAN = RecordVL3, genAddr.Draw(t, "ip"), rapid.Uint16().Draw(t, "vlan")
			return r
		}
		r.MAC = genMAC.Draw(t, "mac")
		return r
	})
)

// roundTrip checks that a message is complete, and that parse returns x from it.
func roundTrip[T comparable](t *rapid.T, x T, encode func(dst []byte, id uint32) []byte, parse func(body []byte) (T, error)) {
	id := rapid.Uint32().Draw(t, "id")
	prefix := []byte("what was there")
	b := encode(prefix, id)
	m, n, err := Split(b[len(prefix):], MaxBody)
	if err != nil || n != len(b)-len(prefix) || m.ID != id || m.Version != Version {
		t.Fatalf("Split: %+v, %d bytes of %d, error %v", m.Header, n, len(b)-len(prefix), err)
	}
	if got, err := parse(m.Body); err != nil || got != x {
		t.Fatalf("decoded %+v, error %v, want %+v", got, err, x)
	}
}

// TestRoundTrip: decode(encode(x)) == x for each message.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vnet := rapid.Uint32().Draw(t, "vnet")
		vl2 := VL2Req{genMAC.Draw(t, "mac"), vnet}
		roundTrip(t, vl2, vl2.Append, ParseVL2Req)
		vl3 := VL3Req{genAddr.Draw(t, "ip"), rapid.Uint32().Draw(t, "type"), vnet}
		roundTrip(t, vl3, vl3.Append, ParseVL3Req)
		vl2ack := VL2Ack{StatusOK, genUnderlay.Draw(t, "underlay")}
		roundTrip(t, vl2ack, vl2ack.Append, ParseVL2Ack)
		vl3ack := VL3Ack{StatusOK, genMAC.Draw(t, "mac"), genUnderlay.Draw(t, "underlay")}
		roundTrip(t, vl3ack, vl3ack.Append, ParseVL3Ack)
		logReq := LogReq{rapid.Uint32().Draw(t, "count"), genAddr.Draw(t, "cn")}
		roundTrip(t, logReq, logReq.Append, ParseLogReq)
		shoot := Shootdown{genMAC.Draw(t, "mac"), vnet}
		roundTrip(t, shoot, shoot.Append, ParseShootdown)
	})
}

// TestRoundTripLog: the same for the messages that hold lists.
func TestRoundTripLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(genRecord, 0, 30).Draw(t, "records")
		m, _, err := Split(AppendLogAck(nil, 9, StatusOK, records), MaxBody)
		if err != nil {
			t.Fatal(err)
		}
		status, got, err := ParseLogAck(m.Body, nil)
		if status != StatusOK || err != nil || len(got) != len(records) {
			t.Fatalf("status %s, %d records, error %v, want %d", status, len(got), err, len(records))
		}
		for i := range records {
			if got[i] != records[i] {
				t.Fatalf("record %d: %+v, want %+v", i, got[i], records[i])
			}
		}
		ids := rapid.SliceOfN(genUUID, 0, 40).Draw(t, "ids")
		m, _, err = Split(AppendLogRM(nil, 9, ids), MaxBody)
		if err != nil {
			t.Fatal(err)
		}
		gotIDs, err := ParseLogRM(m.Body, nil)
		if err != nil || len(gotIDs) != len(ids) {
			t.Fatalf("%d ids, error %v, want %d", len(gotIDs), err, len(ids))
		}
		for i := range ids {
			if gotIDs[i] != ids[i] {
				t.Fatalf("id %d: %v, want %v", i, gotIDs[i], ids[i])
			}
		}
	})
}

// TestParseLogAckWhole: one bad record refuses the batch, as illumos does.
func TestParseLogAckWhole(t *testing.T) {
	good := Record{Type: RecordVL2, ID: eventID(1), MAC: vectorMAC(1), VNet: 1}.appendTo([]byte{0, 0, 0, 0})
	for name, body := range map[string][]byte{
		"no status":     {0, 0, 0},
		"unknown type":  append(bytes.Clone(good), append([]byte{0, 0, 0, 3}, make([]byte, 68)...)...),
		"cut in type":   append(bytes.Clone(good), 0, 0),
		"cut in record": append(bytes.Clone(good), append([]byte{0, 0, 0, 2}, make([]byte, 39)...)...),
	} {
		if _, got, err := ParseLogAck(body, nil); !errors.Is(err, ErrBadBody) || len(got) != 0 {
			t.Errorf("%s: %d records, error %v, want none and ErrBadBody", name, len(got), err)
		}
	}
}

// TestNames: each op, status and reason has a name, unknown ones their number.
func TestNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{OpLogRMAck.String(), "LOG_RM_ACK"},
		{Op(0).String(), "op 0"},
		{Op(99).String(), "op 99"},
		{StatusNotFound.String(), "NOTFOUND"},
		{Status(9).String(), "status 9"},
		{RecordType(3).String(), "record type 3"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	for r := range numReasons {
		if r.String() == "" {
			t.Errorf("reason %d has no name", r)
		}
	}
}

// loopConn returns a connection of a server without a socket, to which only
// answer is put.
func loopConn(t testing.TB, cfg Config) *conn {
	t.Helper()
	s, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &conn{s: s}
}

// TestNoAllocations: a lookup, from the bytes of the request to those of the
// answer, allocates nothing.
func TestNoAllocations(t *testing.T) {
	c := loopConn(t, Config{Lookup: vectorFixture(), Events: vectorEvents(t)})
	var out []byte
	for name, request := range map[string][]byte{
		"VL2":      appendLookup(nil, 0),
		"VL3":      appendLookup(nil, 1),
		"VL3 miss": appendLookup(nil, 2),
		"PING":     appendLookup(nil, 3),
		"LOG_REQ":  LogReq{Count: 1024, CN: netip.MustParseAddr("192.168.2.10")}.Append(nil, 1),
	} {
		allocs := testing.AllocsPerRun(1000, func() {
			m, _, err := Split(request, MaxBody)
			if err != nil {
				t.Fatal(err)
			}
			if out, err = c.answer(out[:0], m); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations, want 0", name, allocs)
		}
	}
}

// TestNoAllocationsOverTCP: the path through the sockets does not allocate either, once
// the buffers have their size.
func TestNoAllocationsOverTCP(t *testing.T) {
	_, addr := startServer(t, Config{Lookup: vectorFixture()})
	nc := dialTCP(t, addr)
	var requests []byte
	for i := range 40 {
		requests = appendLookup(requests, i)
	}
	answers := make([]byte, 10*(4*HeaderSize+vl2AckSize+2*vl3AckSize))
	exchange := func() {
		write(t, nc, requests)
		if _, err := io.ReadFull(nc, answers); err != nil {
			t.Fatal(err)
		}
	}
	exchange()
	if allocs := testing.AllocsPerRun(200, exchange); allocs != 0 {
		t.Errorf("%v allocations for 40 requests, want 0", allocs)
	}
}

// FuzzRequests: for any input, a server does not panic and answers only with complete
// messages that answer its requests in order.
func FuzzRequests(f *testing.F) {
	for _, v := range readVectors(f) {
		f.Add(unhex(f, v.Request))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		c := loopConn(t, Config{Lookup: vectorFixture(), Events: vectorEvents(t)})
		var out []byte
		for len(in) > 0 {
			m, n, err := Split(in, MaxBody)
			if n == 0 || err != nil {
				return
			}
			if out, err = c.answer(out[:0], m); err != nil {
				if len(out) > 0 {
					t.Fatalf("answered %x and refused: %v", out, err)
				}
				return
			}
			got, used, err := Split(out, MaxBody)
			if err != nil || used != len(out) || got.ID != m.ID || got.Op != m.Op+1 {
				t.Fatalf("answer %x to %s, error %v", out, m.Op, err)
			}
			if again, err := reencodeOne(nil, got); err != nil || !bytes.Equal(again, out) {
				t.Fatalf("answer %x decodes to %x, error %v", out, again, err)
			}
			in = in[n:]
		}
	})
}

// FuzzBodies puts any body under any op, past the CRC that would keep most of
// them from the decoders: none panics, and what is decoded and encoded decodes
// to the same again.
func FuzzBodies(f *testing.F) {
	for _, v := range readVectors(f) {
		for _, text := range []string{v.Request, v.Response} {
			if m, n, err := Split(unhex(f, text), MaxBody); n > 0 && err == nil {
				f.Add(uint16(m.Op), m.Body)
			}
		}
	}
	f.Fuzz(func(t *testing.T, op uint16, body []byte) {
		once, err := reencodeOne(nil, Message{Header: Header{Op: Op(op)}, Body: body})
		if err != nil {
			return
		}
		m, n, err := Split(once, len(body)+vl3AckSize)
		if err != nil || n != len(once) {
			t.Fatalf("Split of %x: %d bytes, error %v", once, n, err)
		}
		if twice, err := reencodeOne(nil, m); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%x decodes to %x, error %v", once, twice, err)
		}
	})
}
