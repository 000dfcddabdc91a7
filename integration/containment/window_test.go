package containment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"rutter/api/auth/matrix"
	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/log"
)

// windowIDs is raftstore's Config.DedupeCount: 200,000.
const windowIDs = 200_000

// operator returns a client with the certificate of an operator.
func operator(t *testing.T, c *bench.Cluster, name string) *client.Client {
	t.Helper()
	dial, err := c.Authority.Dialer(matrix.Identity{Role: matrix.Operator, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.URL)
	}
	one, err := client.New(client.Config{Servers: urls, DialTLS: dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.Close)
	return one
}

// idAt returns a change id as a client makes it whose clock is off.
func idAt(off time.Duration) log.UUID {
	id := log.UUID(uuid.Must(uuid.NewV7()))
	ms := time.Now().Add(off).UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// tagChange is a change that makes a NIC tag.
func tagChange(id log.UUID, name string) *log.Change {
	return &log.Change{ID: id, Ops: []log.Op{{
		Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: name},
	}}}
}

// One client whose clock is 50 s ahead writes more than the window holds: the writes
// of all other clients go on meanwhile and after it, in any order, and their retries get
// what they got first.
func TestWindowFullOfIDsFromAhead(t *testing.T) {
	servers, bursts := 1, 1
	if os.Getenv("RUTTER_LONG") != "" {
		servers, bursts = 3, 3
	}
	c := cluster(t, bench.Options{Servers: servers, TLS: true})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Duration(bursts)*time.Minute)
	defer cancel()
	eve, ada := operator(t, c, "eve"), operator(t, c, "ada")
	before := tagChange(client.NewChangeID(), "before")
	first, err := ada.Submit(ctx, before)
	if err != nil {
		t.Fatal(err)
	}
	for round := range bursts {
		flooded := make(chan error, 1)
		go func() { flooded <- flood(ctx, eve, windowIDs+windowIDs/20, 50*time.Second) }()
		for i, done := 0, false; !done; i++ {
			select {
			case err := <-flooded:
				if err != nil {
					t.Fatal(err)
				}
				done = true // and once more, when the window is full
			case <-time.After(100 * time.Millisecond):
			}
			early, late := tagChange(client.NewChangeID(), fmt.Sprintf("early_%d_%d", round, i)), tagChange(idAt(20*time.Millisecond), fmt.Sprintf("late_%d_%d", round, i))
			one, err := ada.Submit(ctx, late)
			if err != nil {
				t.Fatalf("a write beside the flood: %v", err)
			}
			if _, err := ada.Submit(ctx, early); err != nil {
				t.Fatalf("a write with an id of 20 ms before: %v", err)
			}
			if again, err := ada.Submit(ctx, late); err != nil || again.First != one.First {
				t.Fatalf("a retry: %+v, %v, want %+v", again, err, one)
			}
		}
	}
	if again, err := ada.Submit(ctx, before); err != nil || again.First != first.First {
		t.Errorf("a retry of what was before the flood: %+v, %v, want %+v", again, err, first)
	}
}

// flood submits n changes with ids from ahead, as many at once as a stream takes.
// They are refused, and remembered as others are.
func flood(ctx context.Context, c *client.Client, n int, ahead time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := c.NewStream()
	var run sync.WaitGroup
	run.Go(func() { _ = stream.Run(ctx) }) // its error is the writers' too
	const atOnce = 1024
	failed := make(chan error, atOnce)
	for w := range atOnce {
		go func() {
			for i := w; i < n; i += atOnce {
				_, err := stream.Submit(ctx, &log.Change{ID: idAt(ahead), Ops: []log.Op{{Action: log.Delete, Kind: log.KindNICTag, ID: "nothing"}}})
				var refusal *log.Refusal
				if !errors.As(err, &refusal) || refusal.Code != log.CodeResourceNotFound {
					failed <- fmt.Errorf("change %d of the flood: %w", i, err)
					return
				}
			}
			failed <- nil
		}()
	}
	var first error
	for range atOnce {
		first = cmp.Or(first, <-failed)
	}
	cancel()
	run.Wait()
	return first
}

// A change id that is used again for something else, or by another client, is refused
// as such, on each server, and after all were killed; the change itself gets what it
// got first, by whatever way it comes again.
func TestChangeIDUsedAgain(t *testing.T) {
	t.Parallel()
	c := cluster(t, bench.Options{TLS: true})
	ctx := patience(t)
	ada, eve := operator(t, c, "ada"), operator(t, c, "eve")
	change := tagChange(client.NewChangeID(), "hers")
	first, err := ada.Submit(ctx, change)
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		for name, try := range map[string]func() (log.Result, error){
			"other content": func() (log.Result, error) { return ada.Submit(ctx, tagChange(change.ID, "other")) },
			"more content": func() (log.Result, error) {
				return ada.Submit(ctx, &log.Change{ID: change.ID, Ops: append(tagChange(change.ID, "hers").Ops, tagChange(change.ID, "more").Ops...)})
			},
			"another's": func() (log.Result, error) { return eve.Submit(ctx, tagChange(change.ID, "hers")) },
			"on a stream": func() (log.Result, error) {
				return submitOnStream(ctx, ada, tagChange(change.ID, "other"))
			},
		} {
			var refusal *log.Refusal
			if result, err := try(); !errors.As(err, &refusal) || refusal.Code != log.CodeIDReused {
				t.Errorf("%s: %+v, %v; want %s", name, result, err, log.CodeIDReused)
			}
		}
		for name, try := range map[string]func(context.Context, *client.Client, *log.Change) (log.Result, error){
			"as JSON": func(ctx context.Context, c *client.Client, change *log.Change) (log.Result, error) {
				return c.Submit(ctx, change)
			},
			"on a stream": submitOnStream,
		} {
			if again, err := try(ctx, ada, change); err != nil || again.First != first.First {
				t.Errorf("the change again %s: %+v, %v; want %+v", name, again, err, first)
			}
		}
	}
	check()
	for _, s := range c.Servers {
		if err := s.Stop(syscall.SIGKILL); err != nil && s.Runs() {
			t.Fatal(err)
		}
	}
	for _, s := range c.Servers {
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range c.Servers {
		if err := c.AwaitReady(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	check()
}

// submitOnStream writes one change by a write stream of its own.
func submitOnStream(ctx context.Context, c *client.Client, change *log.Change) (log.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream := c.NewStream()
	var run sync.WaitGroup
	run.Go(func() { _ = stream.Run(ctx) })
	defer run.Wait()
	defer cancel()
	return stream.Submit(ctx, change)
}
