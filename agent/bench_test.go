package agent

import (
	"context"
	"fmt"
	"testing"

	"rutter/log"
	"rutter/log/feed"
)

// BenchmarkCatchUp folds a backlog of relevant entries into state and cache. The rate
// is in entries/s, including the last transaction.
func BenchmarkCatchUp(b *testing.B) {
	s := newTestServer(1)
	baseHistory(b, s, 3)
	s.must(b, vmOp(b, 1, 1), nicOp(b, macOf(1), 1, 1, 1, ""))
	const nics = 180
	for n := range nics {
		s.must(b, nicOp(b, log.MAC{0x90, 0xb8, 0xd0, 1, 0, byte(n)}, 2, 2, 1, ""))
	}
	c, r, p := opened(b, b.TempDir())
	defer c.Close()
	cursor, scopes := r.resumePoint()
	ss, messages := s.hello(b, r.cn, cursor, scopes)
	deliverAll(b, r, messages)
	for n := range b.N {
		s.must(b, update(b, log.KindNIC, log.MAC{0x90, 0xb8, 0xd0, 1, 0, byte(n % nics)}.String(), `{"model":"m%d"}`, n))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	b.ResetTimer()
	for ss.pos < s.head() {
		ss.pos++
		if err := deliver(r, ss.entry(ss.pos).(*feed.Entry)); err != nil {
			b.Fatal(err)
		}
		if ss.pos%checkEvery == 0 {
			p.room(nil)
		}
	}
	deliverAll(b, r, []feed.Message{ss.bookmark()})
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

// BenchmarkCacheRows commits new rows, a thousand in a transaction.
func BenchmarkCacheRows(b *testing.B) {
	s, r, _ := caughtUp(b)
	rec, _ := s.state.Get(log.KindNIC, macOf(3).String())
	c, _, _ := opened(b, b.TempDir())
	defer c.Close()
	b.ResetTimer()
	for n := 0; n < b.N; n += 1000 {
		batch := newBatch()
		for i := range 1000 {
			batch.Objects[objectKey{log.KindNIC, fmt.Sprintf("%012d", n+i)}] = kept{Record: rec}
		}
		batch.Head = head{Cursor: r.cursor}
		if err := c.Commit(&batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
