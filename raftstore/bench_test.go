package raftstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/admission"
)

// BenchmarkPropose measures acknowledged changes of one event each, written at
// the leader. The figure to look at is changes/s.
func BenchmarkPropose(b *testing.B) {
	clusters := []struct {
		name  string
		start func(testing.TB, func(*Config)) []*node
	}{
		{"nodes=1", func(t testing.TB, tweak func(*Config)) []*node { return []*node{one(t, tweak)} }},
		{"nodes=3", three},
	}
	for _, cluster := range clusters {
		for _, count := range []int{1, 64, 512} {
			b.Run(fmt.Sprintf("%s/writers=%d", cluster.name, count), func(b *testing.B) {
				nodes := cluster.start(b, realistic)
				leader := leaderOf(b, nodes)
				var next atomic.Int64
				var wg sync.WaitGroup
				b.ResetTimer()
				for range count {
					wg.Go(func() {
						for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
							c := vmChange(newID())
							if _, err := leader.Propose(context.Background(), c); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
				st := leader.Status()
				b.ReportMetric(float64(st.Proposals)/float64(st.Batches), "changes/batch")
				for _, n := range nodes {
					n.halt(b)
				}
			})
		}
	}
}

// realistic takes the settings of a real server.
func realistic(c *Config) {
	*c = Config{
		ID: c.ID, Dir: c.Dir, Listen: c.Listen, Bootstrap: c.Bootstrap, InitialMembers: c.InitialMembers,
		Logger: slog.New(slog.DiscardHandler),
	}
}

// vmChange creates a VM of about 400 bytes.
func vmChange(id log.UUID) *log.Change {
	vm := &log.VM{
		UUID: id, Alias: "web-" + id.String()[:8], OwnerUUID: id, Brand: "lx", State: "provisioning", ZoneState: "running",
		ServerUUID: log.UUID{1}, MaxPhysicalMemory: 1024, Quota: 10, CPUCap: 100, ImageUUID: id,
		CreateTimestamp: log.TimeOf(time.Now()),
	}
	return &log.Change{ID: id, Actor: "bench", Ops: []log.Op{{
		Action: log.Create, Kind: log.KindVM, Object: vm,
		Set: []string{"alias", "brand", "cpu_cap", "create_timestamp", "image_uuid", "max_physical_memory", "owner_uuid", "quota", "state", "uuid", "zone_state"},
	}}}
}

// BenchmarkApply measures what each server does with a committed change beside its
// disk: batches of 256 changes, each of which creates a VM.
func BenchmarkApply(b *testing.B) {
	const batch = 256
	cfg := testConfig(b, "s1", b.TempDir())
	cfg.MaxLagEvents, cfg.MaxLagBytes = 1<<30, 1<<40
	s, err := Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	enc := log.NewEncoder()
	var index uint64
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += batch {
		b.StopTimer()
		proposals := make([]*admission.Proposal, batch)
		for i := range proposals {
			c := vmChange(newID())
			c.Time = log.TimeOf(time.Now())
			bytes, err := enc.Change(c)
			if err != nil {
				b.Fatal(err)
			}
			proposals[i] = &admission.Proposal{Bytes: bytes}
		}
		index++
		entry := &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: batchEntry(proposals)}
		b.StartTimer()
		if err, failed := (fsm{s}).ApplyBatch([]*raft.Log{entry})[0].(error); failed {
			b.Fatal(err)
		}
		if done%(1<<16) == 0 { // as the persister would
			b.StopTimer()
			if err := s.persister.Flush(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
}
