package link

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/log"
	"rutter/projections/desired"
)

const (
	missRate   = 10_500 // first packets a second
	missFor    = 8 * time.Second
	missZones  = 50
	missTable  = 4096 // smaller than what is asked for: entries are evicted all the time
	missPeers  = 20_000
	missPort   = 9999
	missSettle = time.Second
)

// BenchmarkKernelMisses sends 10,000 first packets a second from 50 VM namespaces to as
// many addresses of vnets on demand, with a table that is too small for them, and
// receives them on the other node. The delay of a packet is the time in the kernel
// until the answer, plus the transfer. What was measured is reported before a loss fails
// the benchmark.
//
// A packet is lost if its neighbour has no room among those that wait: the kernel keeps
// gc_thresh3 (1,024) of them for all namespaces together. So losses say that answers
// stood still for longer than that table lasts, 98 ms at this rate, or that one core
// answers fewer packets than are sent: compare miss_cpu_us, the processor time for each
// packet with its sender and receiver, and the longest pause.
func BenchmarkKernelMisses(b *testing.B) {
	w := newWorld(b)
	want := crowd(missZones, 0, missZones)
	_, bare := bookOf(want)
	for i := range missZones {
		w.namespace(fmt.Sprintf("z%d", i))
	}
	m := NewManager(ManagerConfig{Kernel: w.open("cn1"), Table: missTable / missZones * 2})
	m.SetSource(endless{})
	pass(b, m, bare)
	answering(b, m)
	got := w.arrivals(b)
	for got.n.Load() == 0 { // until the listener runs and the new underlay works
		w.sendMisses(b, 1)
		time.Sleep(10 * time.Millisecond)
	}
	for b.Loop() {
		got.reset()
		began, before := time.Now(), processorTime()
		sent := w.sendMisses(b, missPeers)
		took := time.Since(began)
		for end := time.Now().Add(missSettle); got.n.Load() < int64(sent) && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		spent := processorTime() - before
		late := got.late()
		if len(late) == 0 {
			b.Fatal("no packet arrived")
		}
		asked := m.Asked()
		b.Logf("%d first packets in %v, %d arrived, p50 %v, p99 %v, longest %v; %+v", sent, took, len(late),
			late[len(late)/2], late[len(late)*99/100], late[len(late)-1], asked)
		tell(b, "misses_per_s", "%.0f", float64(len(late))/took.Seconds())
		tell(b, "miss_p99_ms", "%.2f", float64(late[len(late)*99/100].Microseconds())/1000)
		tell(b, "misses_lost", "%.0f", float64(sent-len(late)))
		tell(b, "miss_cpu_us", "%.1f", float64(spent.Microseconds())/float64(len(late)))
		tell(b, "miss_pause_ms", "%.1f", float64(got.pause().Microseconds())/1000)
		if len(late) < sent {
			b.Errorf("%d of %d packets were lost: the kernel keeps gc_thresh3 waiting neighbours", sent-len(late), sent)
		}
	}
}

// endless is a log in which each address of crowd's fabrics has a NIC on the other
// node. A million real entries would disturb the measurement by garbage collection.
type endless struct{}

// Read implements Source.
func (e endless) Read(read func(Lookup)) { read(e) }

// Neigh implements Lookup.
func (endless) Neigh(link log.MAC, ip netip.Addr) (desired.Neigh, bool) {
	a := ip.As4()
	return desired.Neigh{Link: link, IP: ip, MAC: log.MAC{2, 2, link[3], link[4], a[2], a[3]}}, true
}

// FDB implements Lookup.
func (endless) FDB(vnet uint32, mac log.MAC) (desired.FDB, bool) {
	return desired.FDB{VNet: vnet, MAC: mac, Dst: netip.AddrFrom4([4]byte{10, 99, 0, 2})}, true
}

// processorTime is what this process used so far, in user and kernel mode.
func processorTime() time.Duration {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// arrivals are packets that came, with the time that they took.
type arrivals struct {
	took []time.Duration
	at   []int64 // monotonic ns of their arrival
	n    atomic.Int64
}

func (a *arrivals) reset() { a.n.Store(0) }

func (a *arrivals) late() []time.Duration {
	late := slices.Clone(a.took[:a.n.Load()])
	slices.Sort(late)
	return late
}

// pause is the longest time between two arrivals.
func (a *arrivals) pause() time.Duration {
	longest, at := int64(0), a.at[:a.n.Load()]
	for i := 1; i < len(at); i++ {
		longest = max(longest, at[i]-at[i-1])
	}
	return time.Duration(longest)
}

// arrivals listens on the other node's VXLAN port.
func (w *world) arrivals(b *testing.B) *arrivals {
	const room = 4 * missRate * int(missFor/time.Second)
	a := &arrivals{took: make([]time.Duration, room), at: make([]int64, room)}
	var conn *net.UDPConn
	if err := w.within("cn2", func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: 4789})
		return err
	}); err != nil {
		b.Fatal(err)
	}
	_ = conn.SetReadBuffer(socketBytes)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		packet := make([]byte, 2048)
		for {
			n, err := conn.Read(packet)
			if err != nil {
				return
			}
			// VXLAN 8, Ethernet 14, IPv4 20, UDP 8, then the time of sending.
			if n == 8+14+20+8+8 && packet[8+12] == 8 && packet[8+13] == 0 {
				sent := int64(binary.NativeEndian.Uint64(packet[n-8:]))
				if i := a.n.Load(); int(i) < len(a.took) {
					a.at[i] = monotonic()
					a.took[i] = time.Duration(a.at[i] - sent)
					a.n.Store(i + 1)
				}
			}
		}
	}()
	b.Cleanup(func() {
		conn.Close()
		<-ended
	})
	return a
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// sendMisses sends at missRate, to so many addresses of each namespace at most,
// and returns how many packets.
func (w *world) sendMisses(b *testing.B, peers int) int {
	fds := make([]int, missZones)
	for i := range fds {
		if err := w.within(fmt.Sprintf("z%d", i), func() (err error) {
			fds[i], err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			return err
		}); err != nil {
			b.Fatal(err)
		}
		defer unix.Close(fds[i])
	}
	const every = time.Second / missRate
	sent, began, payload := 0, time.Now(), make([]byte, 8)
	for p := 0; p < peers && time.Since(began) < missFor; p++ {
		for i := range fds {
			for ahead := time.Duration(sent)*every - time.Since(began); ahead > 0; ahead = time.Duration(sent)*every - time.Since(began) {
				time.Sleep(min(ahead, time.Millisecond))
			}
			binary.NativeEndian.PutUint64(payload, uint64(monotonic()))
			to := unix.SockaddrInet4{Port: missPort, Addr: [4]byte{10, 7, byte(p >> 8), byte(p)}}
			if err := unix.Sendto(fds[i], payload, 0, &to); err != nil {
				b.Fatalf("packet %d: %v", sent, err)
			}
			sent++
		}
	}
	return sent
}
