package standin

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rutter/agent/varpd"
	"rutter/log"
	"rutter/varp"
)

// script is an SVP server that does what it is told. Its first argument is what
// a good server says to the requests that came together.
type script func(good [][]byte, asked []varp.Message, nc net.Conn) error

var errHangUp = errors.New("hang up")

// good writes the answers one by one.
func good(answers [][]byte, _ []varp.Message, nc net.Conn) error {
	for _, b := range answers {
		if _, err := nc.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// rogue is a server that behaves until it is told to follow a script.
type rogue struct {
	dir    *directory
	bad    atomic.Pointer[script] // for what is no PING
	badTo  atomic.Int64           // requests answered by bad
	greets script                 // for PING
}

func startRogue(t testing.TB, dir *directory, greets script) (*rogue, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rogue{dir: dir, greets: greets}
	var running sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	running.Go(func() {
		for {
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, nc)
			mu.Unlock()
			running.Go(func() { defer nc.Close(); r.serve(nc) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, nc := range open {
			_ = nc.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return r, listener.Addr().String()
}

// serve reads requests and gathers those that come within a few milliseconds, so
// that a script has several to put into another order.
func (r *rogue) serve(nc net.Conn) {
	in, w := make([]byte, 64<<10), 0
	for {
		_ = nc.SetReadDeadline(time.Now().Add(time.Hour))
		n, err := nc.Read(in[w:])
		if err != nil {
			return
		}
		w += n
		_ = nc.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		if n, err := nc.Read(in[w:]); err == nil {
			w += n
		}
		var asked []varp.Message
		var answers [][]byte
		greets := false
		for {
			m, n, err := varp.Split(in[:w], varp.MaxBody)
			if n == 0 || err != nil {
				break
			}
			m.Body = slices.Clone(m.Body)
			asked, answers = append(asked, m), append(answers, r.answer(m))
			greets = greets || m.Op == varp.OpPing
			w = copy(in, in[n:w])
		}
		do := script(good)
		switch bad := r.bad.Load(); {
		case greets && r.greets != nil:
			do = r.greets
		case !greets && bad != nil:
			r.badTo.Add(int64(len(asked)))
			do = *bad
		}
		if do(answers, asked, nc) != nil {
			return
		}
	}
}

func (r *rogue) answer(m varp.Message) []byte {
	switch m.Op {
	case varp.OpPing:
		return varp.Append(nil, varp.OpPong, m.ID, nil)
	case varp.OpVL2Req:
		q, _ := varp.ParseVL2Req(m.Body)
		ack := varp.VL2Ack{Status: varp.StatusNotFound}
		if u, ok := r.dir.VL2(q.VNet, q.MAC); ok {
			ack = varp.VL2Ack{Underlay: u}
		}
		return ack.Append(nil, m.ID)
	case varp.OpVL3Req:
		q, _ := varp.ParseVL3Req(m.Body)
		ack := varp.VL3Ack{Status: varp.StatusNotFound}
		if mac, u, ok := r.dir.VL3(q.VNet, q.IP); ok {
			ack = varp.VL3Ack{MAC: mac, Underlay: u}
		}
		return ack.Append(nil, m.ID)
	case varp.OpLogReq:
		return varp.AppendLogAck(nil, m.ID, varp.StatusOK, nil)
	}
	return varp.AppendLogRMAck(nil, m.ID, varp.StatusOK)
}

// each writes all answers after fn has changed them.
func each(fn func(answer []byte, asked varp.Message) []byte) script {
	return func(answers [][]byte, asked []varp.Message, nc net.Conn) error {
		for i := range answers {
			answers[i] = fn(answers[i], asked[i])
		}
		return good(answers, asked, nc)
	}
}

// split writes each answer in two segments, cut at a byte.
func split(at int) script {
	return func(answers [][]byte, asked []varp.Message, nc net.Conn) error {
		for _, b := range answers {
			for _, part := range [][]byte{b[:at], b[at:]} {
				if _, err := nc.Write(part); err != nil {
					return err
				}
				time.Sleep(2 * time.Millisecond) // so that they are segments of their own
			}
		}
		return nil
	}
}

func status(s varp.Status) script {
	return each(func(_ []byte, m varp.Message) []byte {
		switch m.Op {
		case varp.OpVL3Req:
			return varp.VL3Ack{Status: s}.Append(nil, m.ID)
		case varp.OpVL2Req:
			return varp.VL2Ack{Status: s}.Append(nil, m.ID)
		case varp.OpLogReq:
			return varp.AppendLogAck(nil, m.ID, s, nil)
		}
		return varp.AppendLogRMAck(nil, m.ID, s)
	})
}

// failures are the rows of spec/svp.md section 4.5 that begin at the server:
// linux-cn-varpd ends, hangs or burns a core at each. resolves says that ours
// resolves the address all the same, else it must leave it alone until the
// server behaves.
var failures = []struct {
	name     string
	do       script
	resolves bool
}{
	{"server closes (FIN)", func([][]byte, []varp.Message, net.Conn) error { return errHangUp }, false},
	{"RST", func(_ [][]byte, _ []varp.Message, nc net.Conn) error {
		return errors.Join(nc.(*net.TCPConn).SetLinger(0), errHangUp)
	}, false},
	{"silent after a request", func([][]byte, []varp.Message, net.Conn) error { return nil }, false},
	{"reply's body split", split(20), true},
	{"reply's header split", split(7), true},
	{"replies in reverse order", func(answers [][]byte, asked []varp.Message, nc net.Conn) error {
		slices.Reverse(answers)
		return good(answers, asked, nc)
	}, true},
	{"status FATAL", status(varp.StatusFatal), false},
	{"status BADL3TYPE", status(varp.StatusBadL3Type), false},
	{"bad CRC in a reply", each(func(b []byte, _ varp.Message) []byte { b[12] ^= 1; return b }), false},
	{"header version 2", each(func(b []byte, _ varp.Message) []byte { b[1] = 2; return resum(b) }), false},
	{"wrong reply op", each(func(b []byte, m varp.Message) []byte { return varp.Append(nil, varp.OpPong, m.ID, nil) }), false},
	{"unsolicited message", func(_ [][]byte, _ []varp.Message, nc net.Conn) error {
		_, err := nc.Write(varp.VL2Ack{Underlay: remote}.Append(nil, 0x7abcdef0))
		return err
	}, false},
	{"SHOOTDOWN", func(_ [][]byte, _ []varp.Message, nc net.Conn) error {
		_, err := nc.Write(varp.Shootdown{MAC: remoteMAC(1), VNet: vnet}.Append(nil, 1))
		return err
	}, false},
	{"underlay answer IPv6, on an IPv4 device", each(func(b []byte, m varp.Message) []byte {
		if m.Op != varp.OpVL3Req {
			return b
		}
		return varp.VL3Ack{MAC: remoteMAC(1), Underlay: varp.Underlay{Addr: netip.MustParseAddr("fd99::2"), Port: 4789}}.Append(nil, m.ID)
	}), false},
	{"body over 2032 bytes", each(func(b []byte, m varp.Message) []byte {
		return varp.Append(nil, varp.OpVL3Ack, m.ID, make([]byte, 3000))
	}), false},
	{"body of 4 GiB announced", each(func(b []byte, _ varp.Message) []byte {
		binary.BigEndian.PutUint32(b[4:], 1<<32-1)
		return b
	}), false},
	{"noise", each(func(b []byte, _ varp.Message) []byte {
		for i := range b {
			b[i] = byte(i * 37)
		}
		return b
	}), false},
}

// resum gives a message the CRC that fits it, whatever its header says.
func resum(b []byte) []byte {
	binary.BigEndian.PutUint32(b[12:], 0)
	binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b))
	return b
}

// TestServerFailures: each failure of the server costs at most the time that it
// lasts, and nothing wrong gets into the kernel.
func TestServerFailures(t *testing.T) {
	w := newWorld(t, 0)
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) {
			w := *w
			w.t = t
			dir := newDirectory(3)
			r, at := startRogue(t, dir, nil)
			d, stop := w.run(w.config(at))
			awaitLinks(t, d)
			r.bad.Store(&f.do)
			if f.resolves {
				for n := 1; n <= 3; n++ { // together, so that there is an order
					w.must(send(w.zone, remoteIP(n)))
				}
				for n := 1; n <= 3; n++ {
					w.resolved("all the same", remoteIP(n), n, remote.Addr)
				}
			} else {
				w.eventually("asked", func(s state) bool { return r.badTo.Load() > 0 && met(d) }, remoteIP(1))
				if s := w.state("zA"); len(s.neighs) != 0 || len(s.forwards) != 0 {
					t.Errorf("meanwhile the kernel got %v", s)
				}
			}
			r.bad.Store(nil)
			w.resolved("after the failure", remoteIP(1), 1, remote.Addr)
			stop()
			dir.change(func() { dir.nothing = true })
			w.clear()
		})
	}
}

// met reports whether a failure has been met.
func met(d *varpd.Daemon) bool {
	s := d.Stats()
	return s.Failed > 0 || s.Refused > 0 || s.PollsFailed > 0
}

// TestGreetings: at the start a good PONG is needed, however it arrives, and its
// absence is told in time.
func TestGreetings(t *testing.T) {
	w := newWorld(t, 0)
	for _, test := range []struct {
		name string
		do   script
		want string // in the error, or "" for a good start
	}{
		{"PONG in two segments", split(9), ""},
		{"no PONG", func([][]byte, []varp.Message, net.Conn) error { return nil }, "silent for"},
		{"bad CRC", each(func(b []byte, _ varp.Message) []byte { b[12] ^= 1; return b }), "wrong CRC"},
		{"another answer", each(func(_ []byte, m varp.Message) []byte { return varp.VL2Ack{}.Append(nil, m.ID) }), "VL2_ACK where PONG was due"},
		{"hangs up", func([][]byte, []varp.Message, net.Conn) error { return errHangUp }, "EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := *w
			w.t = t
			_, at := startRogue(t, newDirectory(1), test.do)
			cfg := w.config(at)
			if test.want == "" {
				d, _ := w.run(cfg)
				awaitLinks(t, d)
				return
			}
			cfg.Greeting = time.Second
			d, err := varpd.New(cfg)
			w.must(err)
			began := time.Now()
			err = d.Run(t.Context())
			if !errors.Is(err, varpd.ErrNoServer) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), at) {
				t.Errorf("got %v, want ErrNoServer that names %s and %q", err, at, test.want)
			}
			if took := time.Since(began); took > patience {
				t.Errorf("told after %s", took)
			}
		})
	}
	t.Run("no server", func(t *testing.T) {
		w := *w
		w.t = t
		cfg := w.config("127.0.0.1:9")
		cfg.Greeting = 3 * time.Second // on a busy machine a first try may take most of one
		d, err := varpd.New(cfg)
		w.must(err)
		if err := d.Run(t.Context()); !errors.Is(err, varpd.ErrNoServer) || !strings.Contains(err.Error(), "refused") {
			t.Errorf("got %v, want ErrNoServer", err)
		}
	})
}

// TestServerRestarts: a server that goes and comes back, and one of two that
// goes, are outlived.
func TestServerRestarts(t *testing.T) {
	w := newWorld(t, 0)
	dir := newDirectory(9)
	at, stopFirst := serve(t, dir, "127.0.0.1:0")
	second, stopSecond := serve(t, dir, "127.0.0.1:0")
	w.run(w.config(at, second))
	w.resolved("at first", remoteIP(1), 1, remote.Addr)
	stopFirst()
	w.resolved("by the second server", remoteIP(2), 2, remote.Addr)
	stopSecond()
	w.must(send(w.zone, remoteIP(3)))
	time.Sleep(300 * time.Millisecond) // no server answers for a while
	serve(t, dir, at)
	w.resolved("by the first, which is back", remoteIP(4), 4, remote.Addr)
	w.resolved("what was missed meanwhile", remoteIP(3), 3, remote.Addr)
	if s := w.state("zA"); s.neighs[remoteIP(1)] != remoteMAC(1) {
		t.Error("what was there went with the server")
	}
}

// clear takes all entries of cn1 away. A daemon that runs may be faster with those
// that lead to no node any more.
func (w *world) clear() {
	w.t.Helper()
	w.ip("ip", "zA", "neigh", "flush", "dev", "fabric0", "nud", "all")
	for mac := range w.state().forwards {
		if mac != (log.MAC{}) {
			err := w.tryIP("bridge", "cn1", "fdb", "del", mac.String(), "dev", "sdcvxl5")
			if _, left := w.state().forwards[mac]; err != nil && left {
				w.t.Fatal(err)
			}
		}
	}
}
