//go:build rivals

// Command rival measures etcd, or NATS JetStream, by the same closed loop as our own
// bench, with their own Go clients, and prints the outcome as JSON. It is built with the
// module file scripts/rivals.mod, so that the program itself never depends on
// them: see `make bench-store`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"rutter/cmd/rutter/bench/load"
)

// Bounds of what is asked of etcd at once.
const (
	opsAtOnce = 128  // puts of one transaction while filling: etcd's default bound
	fillers   = 16   // such transactions under way
	pageSize  = 5000 // keys of a page of the range read
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "rival:", err)
		os.Exit(1)
	}
}

func run() error {
	kind := flag.String("kind", "etcd", "etcd or nats")
	endpoints := flag.String("endpoints", "", "`URLS` of the servers, the leader first")
	what := flag.String("what", "append", "append, fill, range, watch or fanout")
	connections := flag.Int("connections", 16, "clients, each with a connection of its own")
	writers := flag.Int("writers", 512, "writers")
	duration := flag.Duration("duration", 10*time.Second, "time to write")
	size := flag.Int("size", 400, "bytes of a value")
	rate := flag.Int("rate", 100, "puts a second of a fanout")
	count := flag.Uint64("count", 1_000_000, "keys to fill in or read")
	flag.Parse()
	ctx := context.Background()
	value := strings.Repeat("v", *size)
	if *kind == "nats" {
		outcome, err := appendMessages(ctx, strings.Split(*endpoints, ","), *connections, value, load.Plan{Writers: *writers, Duration: *duration})
		return errors.Join(err, json.NewEncoder(os.Stdout).Encode(outcome))
	}
	clients, err := connect(strings.Split(*endpoints, ","), *connections)
	if err != nil {
		return err
	}
	defer func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}()
	var outcome load.Outcome
	switch *what {
	case "append":
		outcome = appendKeys(ctx, clients, value, load.Plan{Writers: *writers, Duration: *duration})
	case "fill":
		outcome, err = fill(ctx, clients, value, *count)
	case "range":
		outcome, err = rangeRead(ctx, clients[0], *count)
	case "watch":
		outcome, err = watch(ctx, clients[0], *count)
	case "fanout":
		outcome, err = fanout(ctx, clients, *rate, *duration, *size)
	default:
		err = fmt.Errorf("-what %q: want append, fill, range, watch or fanout", *what)
	}
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(outcome))
}

func connect(endpoints []string, n int) (clients []*clientv3.Client, err error) {
	for range n {
		// Only the leader: what a follower would forward costs etcd more.
		c, err := clientv3.New(clientv3.Config{
			Endpoints: endpoints[:1], DialTimeout: 10 * time.Second, Logger: zap.NewNop(), MaxCallRecvMsgSize: 256 << 20,
		})
		if err != nil {
			return clients, err
		}
		clients = append(clients, c)
	}
	return clients, nil
}

// key is that of the nth event: a log in etcd is keys in order.
func key(n uint64) string { return fmt.Sprintf("/log/%020d", n) }

// appendKeys puts new keys, one a revision.
func appendKeys(ctx context.Context, clients []*clientv3.Client, value string, plan load.Plan) load.Outcome {
	base := uint64(time.Now().UnixNano())
	var next atomic.Uint64
	plan.Do = func(ctx context.Context, writer int, _ uint64) error {
		_, err := clients[writer%len(clients)].Put(ctx, key(base+next.Add(1)), value)
		return err
	}
	return load.Run(ctx, plan)
}

// fill puts count keys from 0 on, many a revision.
func fill(ctx context.Context, clients []*clientv3.Client, value string, count uint64) (load.Outcome, error) {
	var next atomic.Uint64
	o := load.Run(ctx, load.Plan{
		Writers: fillers, Count: (count + opsAtOnce - 1) / opsAtOnce,
		Do: func(ctx context.Context, writer int, _ uint64) error {
			first := (next.Add(1) - 1) * opsAtOnce
			ops := make([]clientv3.Op, opsAtOnce)
			for i := range ops {
				ops[i] = clientv3.OpPut(key(first+uint64(i)), value)
			}
			_, err := clients[writer%len(clients)].Txn(ctx).Then(ops...).Commit()
			return err
		},
	})
	if o.Errors > 0 {
		return o, fmt.Errorf("%d transactions failed: %s", o.Errors, o.FirstError)
	}
	return o, nil
}

func measured(begin time.Time, n uint64) load.Outcome {
	took := time.Since(begin).Seconds()
	return load.Outcome{Writers: 1, Count: n, Seconds: took, PerSecond: float64(n) / took}
}

// rangeRead reads count keys page by page, at one revision, as one reader.
func rangeRead(ctx context.Context, c *clientv3.Client, count uint64) (load.Outcome, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(load.ReaderGC))
	begin := time.Now()
	var n, bytes uint64
	var revision int64
	from := key(0)
	for n < count {
		page, err := c.Get(ctx, from, clientv3.WithRange(key(count)), clientv3.WithLimit(pageSize), clientv3.WithRev(revision), clientv3.WithSerializable())
		if err != nil {
			return measured(begin, n), err
		}
		if len(page.Kvs) == 0 {
			return measured(begin, n), fmt.Errorf("%d keys, want %d", n, count)
		}
		for _, kv := range page.Kvs {
			bytes += uint64(len(kv.Value))
		}
		n += uint64(len(page.Kvs))
		revision = page.Header.Revision
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
	return measured(begin, n), nil
}

// watch reads count events by a watch from the first revision.
func watch(ctx context.Context, c *clientv3.Client, count uint64) (load.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	defer debug.SetGCPercent(debug.SetGCPercent(load.ReaderGC))
	begin := time.Now()
	var n uint64
	for response := range c.Watch(ctx, "/log/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := response.Err(); err != nil {
			return measured(begin, n), err
		}
		if n += uint64(len(response.Events)); n >= count {
			break
		}
	}
	return measured(begin, n), nil
}
