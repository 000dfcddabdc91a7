package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/load"
	"rutter/log"
)

// Sizes of what is measured of NAPI's lists (issue 8).
const (
	nicsOfOne    = 2 // NICs of each VM
	nicsAtOnce   = 256
	nicFillers   = 8
	listReaders  = 2
	listTime     = 10 * time.Second
	listWarm     = 2 * time.Second
	stallTurn    = 3 * time.Second // with lists, then as long without
	stallTurns   = 5
	stallWriters = 4
	listOffset   = 500_000 // of the deep pages that are listed beside the writes
	// listEvery is how often each of the long lists is asked for. Asked for without
	// a pause they would take all of a small machine's processors, and what is
	// measured would be those.
	listEvery = 200 * time.Millisecond
)

// nicCount is of NICs in the cluster that lists are asked of.
var nicCount = flag.Int("nics", 1_000_000, "`N` NICs among which list looks, and which stall goes through")

// runLists measures the list of a VM's NICs among a million, and what lists that
// go through all of them cost those who write.
func runLists(ctx context.Context, s *suite) error {
	return s.on(ctx, "lists", func(c *bench.Cluster) error {
		begin := time.Now()
		if err := fillNICs(ctx, c, *nicCount); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "lists: %d NICs in %s\n", *nicCount, time.Since(begin).Round(time.Second))
		leader, err := c.Leader(ctx)
		if err != nil {
			return err
		}
		o := load.Run(ctx, load.Plan{Writers: listReaders, Warm: listWarm, Duration: listTime, Do: func(ctx context.Context, _ int, _ uint64) error {
			vm := vmOf(rand.IntN(*nicCount))
			found, err := listNICs(ctx, leader.URL, "belongs_to_uuid="+vm.String())
			if err == nil && found != nicsOfOne {
				err = fmt.Errorf("VM %s has %d NICs, want %d", vm, found, nicsOfOne)
			}
			return err
		}})
		fmt.Fprintf(os.Stderr, "list: %+v\n", o)
		if o.Errors > 0 {
			return fmt.Errorf("%d lists failed: %s", o.Errors, o.FirstError)
		}
		s.Set("list_p99_ms", o.P99)
		return stall(ctx, s, c, leader.URL)
	})
}

// stall compares writes with and without lists on the same server, in turns: what
// else comes and goes on the machine, as collections of garbage, is then in both.
func stall(ctx context.Context, s *suite, c *bench.Cluster, server string) error {
	var listing atomic.Bool
	var alone, beside [stallWriters]load.Histogram
	turning, cancel := context.WithCancel(ctx)
	var lists atomic.Int64
	var turns sync.WaitGroup
	turns.Go(func() { takeTurns(turning, server, &listing, &lists) })
	defer turns.Wait()
	defer cancel()
	begin := time.Now().Add(listWarm)
	err := bench.Streams(ctx, c, stallWriters, func(submit []bench.Submit) error {
		o := load.Run(ctx, load.Plan{Writers: stallWriters, Warm: listWarm, Duration: stallTurns * 2 * stallTurn, Do: func(ctx context.Context, writer int, _ uint64) error {
			from, with := time.Now(), listing.Load()
			err := writeNIC(ctx, submit[writer])
			switch {
			case err != nil || from.Before(begin) || with != listing.Load(): // in the turn after
			case with:
				beside[writer].Add(time.Since(from))
			default:
				alone[writer].Add(time.Since(from))
			}
			return err
		}})
		if o.Count == 0 || o.Errors > 0 {
			return fmt.Errorf("%d writes failed: %s", o.Errors, o.FirstError)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var without, with load.Histogram
	for i := range stallWriters {
		without.Merge(&alone[i])
		with.Merge(&beside[i])
	}
	fmt.Fprintf(os.Stderr, "writes alone: p50 %v p99 %v most %v; beside %d lists: p50 %v p99 %v most %v\n", without.Quantile(0.5), without.Quantile(0.99), without.Max(),
		lists.Load(), with.Quantile(0.5), with.Quantile(0.99), with.Max())
	s.Set("write_stall_ms", max(0, float64((with.Quantile(0.99)-without.Quantile(0.99)).Microseconds())/1000))
	return nil
}

// takeTurns asks a server for long lists in every other turn, until ctx ends.
func takeTurns(ctx context.Context, server string, listing *atomic.Bool, lists *atomic.Int64) {
	absent := log.UUID{0xff}
	queries := []string{"owner_uuid=" + absent.String(), fmt.Sprintf("limit=1000&offset=%d", min(listOffset, *nicCount/2))}
	for ctx.Err() == nil {
		listing.Store(!listing.Load())
		turn, cancel := context.WithTimeout(ctx, stallTurn)
		var running sync.WaitGroup
		for _, query := range queries {
			if listing.Load() {
				running.Go(func() { keepListing(turn, server, query, lists) })
			}
		}
		<-turn.Done()
		cancel()
		running.Wait()
	}
}

// keepListing asks for a list each listEvery, until ctx ends.
func keepListing(ctx context.Context, server, query string, lists *atomic.Int64) {
	every := time.NewTicker(listEvery)
	defer every.Stop()
	for {
		if body, err := ask(ctx, server, query); err == nil {
			_, _ = io.Copy(io.Discard, body) // what it costs to read them is not the server's
			_ = body.Close()
			lists.Add(1)
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// writeNIC updates a NIC of the workload.
func writeNIC(ctx context.Context, submit bench.Submit) error {
	nic := &log.NIC{Model: fmt.Sprint("m", rand.IntN(1<<30))}
	return refused(submit(ctx, &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{
		Action: log.Update, Kind: log.KindNIC, ID: macOf(rand.IntN(*nicCount)).String(), Set: []string{"model"}, Object: nic,
	}}}))
}

func refused(result log.Result, err error) error {
	if err == nil && result.Refusal != nil {
		return result.Refusal
	}
	return err
}

func macOf(i int) (mac log.MAC) {
	mac[0] = 2
	binary.BigEndian.PutUint32(mac[2:], uint32(i))
	return mac
}

func vmOf(i int) (vm log.UUID) {
	binary.BigEndian.PutUint64(vm[8:], uint64(i/nicsOfOne+1))
	return vm
}

// fillNICs creates the NICs.
func fillNICs(ctx context.Context, c *bench.Cluster, n int) error {
	return bench.Streams(ctx, c, nicFillers, func(submit []bench.Submit) error {
		var next atomic.Int64
		o := load.Run(ctx, load.Plan{Writers: nicFillers, Count: uint64((n + nicsAtOnce - 1) / nicsAtOnce), Do: func(ctx context.Context, writer int, _ uint64) error {
			first := int(next.Add(nicsAtOnce)) - nicsAtOnce
			change := &log.Change{ID: client.NewChangeID()}
			for i := first; i < min(first+nicsAtOnce, n); i++ {
				change.Ops = append(change.Ops, log.Op{
					Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_type", "belongs_to_uuid", "mac", "owner_uuid", "state"},
					Object: &log.NIC{MAC: macOf(i), BelongsToType: "zone", BelongsToUUID: vmOf(i), OwnerUUID: log.UUID{1, byte(i)}, State: "running"},
				})
			}
			result, err := submit[writer](ctx, change)
			return refused(result, err)
		}})
		if o.Errors > 0 {
			return fmt.Errorf("%d changes failed: %s", o.Errors, o.FirstError)
		}
		return ctx.Err()
	})
}

// listNICs returns how many NICs a list has.
func listNICs(ctx context.Context, server, query string) (int, error) {
	body, err := ask(ctx, server, query)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	var nics []struct{}
	err = json.NewDecoder(body).Decode(&nics)
	return len(nics), err
}

// ask asks for a list of NICs.
func ask(ctx context.Context, server, query string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/napi/nics?"+query, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		return nil, fmt.Errorf("GET %s: %s %s", query, response.Status, b)
	}
	return response.Body, nil
}
