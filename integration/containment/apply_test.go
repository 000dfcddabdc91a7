package containment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/log"
)

// TestHugeIDsAreRefused: one request of 300 KiB to a follower, and 600 KiB
// of any text as a compute node, are refused in few words, the same when they are
// tried again, also after a restart; no server stops. At 5b1626e all servers ended with
// "first result of change …: too large", and again one second after each start.
func TestHugeIDsAreRefused(t *testing.T) {
	t.Parallel()
	c := cluster(t, bench.Options{TLS: true})
	operators, node := clients(t, c, matrix.Identity{Role: matrix.Operator, Name: "anna"}), clients(t, c, matrix.Identity{Role: matrix.CN, UUID: log.UUID{1}})
	follower := operators[notLeading(t, c)]
	remove := func(id string) *log.Change {
		return &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{Action: log.Delete, Kind: log.KindNIC, ID: id}}}
	}
	control, text := remove(strings.Repeat("\x7f", 300<<10)), remove(strings.Repeat("any text. ", 60<<10))
	ask := func() {
		t.Helper()
		for range 2 {
			refused(t, follower, control, "id_bytes")
			for _, n := range node {
				refused(t, n, text, "id_bytes")
			}
		}
	}
	ask()
	goesOn(t, c, "before")
	restarted(t, c)
	ask()
	goesOn(t, c, "after")
	agree(t, c)
}

// TestUnknownFieldsAreRefused: a change that leaves no room for its event,
// because it has an unknown field, is refused by the limit's name. At 5b1626e
// all servers ended with "event of server … has 1048594 bytes, over 1048576", and again
// at each start.
func TestUnknownFieldsAreRefused(t *testing.T) {
	t.Parallel()
	c := cluster(t, bench.Options{})
	stream := c.Client.NewStream()
	ctx, cancel := context.WithCancel(patience(t))
	var running sync.WaitGroup
	running.Go(func() { _ = stream.Run(ctx) }) // it ends with the context
	defer running.Wait()
	defer cancel()
	sizes := []int{1_048_490}
	if os.Getenv("RUTTER_LONG") != "" {
		sizes = []int{20_000, 400_000, 900_000, 1_048_300, 1_048_350, 1_048_400, 1_048_430, 1_048_460, 1_048_490}
	}
	for round := range 2 {
		for _, size := range sizes {
			change := withUnknownField(t, size)
			for range 2 {
				_, err := stream.Submit(ctx, change)
				var refusal *log.Refusal
				if !errors.As(err, &refusal) || !strings.Contains(refusal.Error(), "unknown_bytes") {
					t.Fatalf("a change of %d bytes: %v, want a refusal that names the limit", size, err)
				}
			}
		}
		goesOn(t, c, []string{"before", "after"}[round])
		if round == 0 {
			restarted(t, c)
		}
	}
	agree(t, c)
}

// withUnknownField returns a change of size bytes, nearly all of which are a field
// of a newer program.
func withUnknownField(t *testing.T, size int) *log.Change {
	t.Helper()
	change := &log.Change{ID: client.NewChangeID()}
	encoded := func(unknown int) int {
		change.Ops = []log.Op{{Action: log.Create, Kind: log.KindVM, Set: []string{"alias"}, Object: vmWith(t, unknown)}}
		b, err := log.NewEncoder().Change(change)
		if err != nil {
			t.Fatal(err)
		}
		return len(b)
	}
	const some = 1000
	if got := encoded(size - (encoded(some) - some)); got != size {
		t.Fatalf("a change of %d bytes, want %d", got, size)
	}
	return change
}

// vmWith returns a VM with one more field of n bytes, behind its late ones.
func vmWith(t *testing.T, n int) log.Object {
	t.Helper()
	b, err := log.NewEncoder().Object(&log.VM{Alias: "a"})
	if err != nil {
		t.Fatal(err)
	}
	// The format byte, an array's header (0xdc and the number of fields in two bytes,
	// or one byte for up to 15), the fields.
	fields, rest := uint16(b[1]&0x0f), b[2:]
	if b[1] == 0xdc {
		fields, rest = binary.BigEndian.Uint16(b[2:]), b[4:]
	}
	with := append(binary.BigEndian.AppendUint16([]byte{b[0], 0xdc}, fields+3), rest...)
	with = append(with, 0xa0, 0x90)                                     // no properties, no labels
	with = binary.BigEndian.AppendUint32(append(with, 0xc6), uint32(n)) // bin 32
	o, err := log.DecodeObject(log.KindVM, "", append(with, bytes.Repeat([]byte{1}, n)...))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// clients returns a client of each server for an identity.
func clients(t *testing.T, c *bench.Cluster, id matrix.Identity) (all []*client.Client) {
	t.Helper()
	dial, err := c.Authority.Dialer(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Servers {
		api, err := client.New(client.Config{Servers: []string{s.URL}, DialTLS: dial})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(api.Close)
		all = append(all, api)
	}
	return all
}

// notLeading returns the place of a server that does not lead.
func notLeading(t *testing.T, c *bench.Cluster) int {
	t.Helper()
	leader, err := c.Leader(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range c.Servers {
		if s != leader {
			return i
		}
	}
	t.Fatal("every server leads")
	return 0
}

// maxAnswer is what a refusal may take as JSON, in which a byte can take six.
const maxAnswer = 6 * log.MaxResultBytes

// refused submits what must be refused by the name of a limit, in few words.
func refused(t *testing.T, api *client.Client, change *log.Change, limit string) {
	t.Helper()
	_, err := api.Submit(patience(t), change)
	var refusal *log.Refusal
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Error(), limit) || len(refusal.Error()) > maxAnswer {
		t.Fatalf("got %.500v, want a refusal that names %s", err, limit)
	}
}

// goesOn writes something, and sees that every server runs.
func goesOn(t *testing.T, c *bench.Cluster, name string) {
	t.Helper()
	_, err := c.Client.Submit(patience(t), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{
		Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: name},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Servers {
		if !s.Runs() {
			t.Fatalf("%s has ended", s.ID)
		}
	}
}

// restarted stops all servers and starts them again.
func restarted(t *testing.T, c *bench.Cluster) {
	t.Helper()
	for _, s := range c.Servers {
		if err := s.Stop(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range c.Servers {
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range c.Servers {
		if err := c.AwaitReady(patience(t), s); err != nil {
			t.Fatal(err)
		}
	}
}

// agree waits until each server has compared itself with the others at the present
// head, and found no difference.
func agree(t *testing.T, c *bench.Cluster) {
	t.Helper()
	begun := make([]uint64, len(c.Servers))
	for i, s := range c.Servers {
		begun[i] = compared(t, s, c)
	}
	for ctx := patience(t); ; {
		done := true
		for i, s := range c.Servers {
			done = compared(t, s, c) > begun[i] && done
		}
		if done {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the servers do not compare their states")
		}
	}
}

// compared is how often a server has compared itself with the others.
func compared(t *testing.T, s *bench.Server, c *bench.Cluster) uint64 {
	t.Helper()
	status, err := c.Client.StatusOf(patience(t), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if status.Detail.Diverged != "" || status.Detail.Differences > 0 {
		t.Fatalf("%s differs from the others: %s", s.ID, status.Detail.Diverged)
	}
	return status.Detail.Comparisons
}
