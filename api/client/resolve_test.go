package client

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// names is a DNS server that gives every name the same address, for a long time.
type names struct{ address atomic.Pointer[net.IP] }

// dial is for net.Resolver: a stream, on which each message is preceded by its
// length (RFC 1035 §4.2.2).
func (n *names) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		for {
			var length [2]byte
			if _, err := io.ReadFull(far, length[:]); err != nil {
				return
			}
			query := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(far, query); err != nil {
				return
			}
			answer := n.answer(query)
			if _, err := far.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
				return
			}
		}
	}()
	return near, nil
}

// answer is a response with an address, if the only question is for one of IPv4
// (RFC 1035 §4.1).
func (n *names) answer(query []byte) []byte {
	const header, typeA = 12, 1
	end := header
	for query[end] != 0 {
		end += 1 + int(query[end])
	}
	end += 1 + 2 + 2 // the root label, type and class
	a := append([]byte(nil), query[:end]...)
	binary.BigEndian.PutUint16(a[2:], 0x8180) // a response, recursion desired and available
	binary.BigEndian.PutUint16(a[6:], 0)
	binary.BigEndian.PutUint32(a[8:], 0)
	if binary.BigEndian.Uint16(a[end-4:]) != typeA {
		return a
	}
	binary.BigEndian.PutUint16(a[6:], 1)
	a = append(a, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0x0e, 0x10, 0, net.IPv4len) // for an hour
	return append(a, n.address.Load().To4()...)
}

// A server's name is resolved on each connect: when it has moved to another
// address, the next connection goes there, however long the old answer was to hold.
func TestFeedResolvesEachTime(t *testing.T) {
	var served [2]atomic.Int32
	listen := func(i int, address string) net.Listener {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Skipf("no second address of loopback: %v", err)
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			served[i].Add(1)
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", Upgrade)
			w.WriteHeader(http.StatusSwitchingProtocols)
		}), ReadHeaderTimeout: 30 * time.Second}}
		s.Start()
		t.Cleanup(s.Close)
		return l
	}
	_, port, err := net.SplitHostPort(listen(0, "127.0.0.1:0").Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	listen(1, net.JoinHostPort("127.0.0.2", port))
	var dns names
	dialer := &net.Dialer{Timeout: 30 * time.Second, Resolver: &net.Resolver{PreferGo: true, Dial: dns.dial}}
	server := "http://server1.rutter.test.:" + port
	c, err := New(Config{Servers: []string{server}, Dial: dialer.DialContext})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for i, want := range []int{0, 0, 1, 1, 0} {
		address := net.IPv4(127, 0, 0, byte(want+1))
		dns.address.Store(&address)
		before := served[want].Load()
		conn, err := c.Feed(t.Context(), server)
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.RemoteAddr().String(); !strings.HasPrefix(got, address.String()+":") || served[want].Load() != before+1 {
			t.Errorf("connection %d went to %s, want %s", i, got, address)
		}
		conn.Close()
	}
}
