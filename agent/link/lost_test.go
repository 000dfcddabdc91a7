package link

import (
	"context"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBurstBeyondTheBufferIsAnswered: more neighbours are asked for at once than the
// socket has room for. Each is asked by one packet only, so those that were lost
// (ENOBUFS) are found only by reading the waiting neighbours.
func TestBurstBeyondTheBufferIsAnswered(t *testing.T) {
	const peers = 400
	w := newWorld(t)
	w.namespace("z0")
	truth, bare := bookOf(crowd(1, peers, 1))
	h := w.open("cn1")
	h.cfg.missBuffer = 4096 // room for a few messages
	m := NewManager(ManagerConfig{Kernel: h})
	m.SetSource(truth)
	w.pass(m, bare)
	answering(t, m)
	// The kernel gives up after 3 s without an answer, which a busy machine may need;
	// where that cannot be set it stays.
	_ = w.within("z0", func() error { return os.WriteFile("/proc/sys/net/ipv4/neigh/fabric0/mcast_solicit", []byte("30"), 0) })
	var send []func()
	for peer := range peers {
		send = append(send, w.sender(t, "z0", netip.AddrFrom4([4]byte{10, 7, byte(peer >> 8), byte(peer)})))
	}
	for end := time.Now().Add(patience); m.Asked().Resident == 0; time.Sleep(10 * time.Millisecond) {
		send[0]() // until the listener runs
		if time.Now().After(end) {
			t.Fatal("nothing was answered")
		}
	}
	m.demand.mu.Lock() // nothing is answered while the burst comes
	for peer := 1; peer < peers; peer++ {
		send[peer]()
	}
	m.demand.mu.Unlock()
	for end := time.Now().Add(patience); m.Asked().Resident < 2*peers; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("got %+v, want %d entries", m.Asked(), 2*peers)
		}
	}
}

// TestAskWithoutBroadcast: without the right to listen to other namespaces, the error
// says what is missing.
func TestAskWithoutBroadcast(t *testing.T) {
	w := newWorld(t)
	h := w.open("cn1")
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			ended <- err
			return
		}
		data[0].Effective &^= 1 << unix.CAP_NET_BROADCAST
		if err := unix.Capset(&header, &data[0]); err != nil {
			ended <- err
			return
		}
		ended <- h.Ask(context.Background(), func(context.Context, []Question, EntryWriter) {})
	}()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "CAP_NET_BROADCAST") {
		t.Errorf("got %v, want an error that names CAP_NET_BROADCAST", err)
	}
}
