package varpd

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"rutter/log"
	"rutter/varp"
)

// shotAt is a poller of d, and its record about an address of vnet 5.
func shotAt(d *Daemon, octet byte) (p *poller, r varp.Record, k key) {
	k = key{vnet: 5, ip: netip.AddrFrom4([4]byte{172, 16, 0, octet})}
	p = &poller{daemon: d, local: netip.AddrFrom4([4]byte{10, 0, 0, 1}), open: map[log.UUID]bool{}}
	return p, varp.Record{ID: log.UUID{octet}, Type: varp.RecordVL3, VNet: k.vnet, IP: k.ip}, k
}

// TestRecordWaitsForItsAnswer (SAFETY F7): a record about an entry of the kernel is acknowledged
// when it was asked again, at a time when the server's cache cannot be older than the record.
func TestRecordWaitsForItsAnswer(t *testing.T) {
	d, _ := newScanned(t)
	d.answer(t, linkKey{"z1", "fabric1"}, 9)
	p, r, k := shotAt(d, 9)
	now := time.Now()
	d.takeRecords(p.receive([]varp.Record{r}, now))
	if ids := p.take(false); len(ids) > 0 || d.queries.byKey[k] == nil {
		t.Fatalf("acknowledged %v before it was asked again", ids)
	}
	until := now.Add(d.cfg.cacheWindow())
	if d.answered(k, until.Add(-time.Nanosecond)); len(p.take(false)) > 0 {
		t.Error("acknowledged with an answer that may be older than the record")
	}
	if d.answered(k, until); !slices.Equal(p.take(false), []log.UUID{r.ID}) {
		t.Error("not acknowledged with an answer of after the server's cache")
	}
}

// refusing is a Resolver with one record, whose first removal fails.
type refusing struct {
	Resolver
	record  varp.Record
	removed int
}

func (s *refusing) LogRequest(context.Context, netip.Addr, int) ([]varp.Record, error) {
	return []varp.Record{s.record}, nil
}

func (s *refusing) LogRemove(context.Context, []log.UUID) error {
	if s.removed++; s.removed == 1 {
		return errors.New("the connection ended")
	}
	return nil
}

// TestAcknowledgementThatFails (SAFETY F7): a record whose removal failed is removed again.
func TestAcknowledgementThatFails(t *testing.T) {
	d, _ := newScanned(t)
	p, r, _ := shotAt(d, 8) // which the kernel does not have
	server := &refusing{record: r}
	d.cfg.Resolver, d.records = server, make(chan *batch)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for {
			select {
			case b := <-d.records:
				d.takeRecords(b)
			case <-ctx.Done():
				return
			}
		}
	}()
	if more, state := p.poll(ctx), p.current(); more || state.Acknowledged != 0 || state.Open != 1 || state.LastError == "" {
		t.Errorf("after a removal that failed: %+v, want the record to be open", state)
	}
	if more, state := p.poll(ctx), p.current(); !more || state.Acknowledged != 1 || state.Open != 0 || server.removed != 2 {
		t.Errorf("after the next: %+v, and %d removals; want it to be acknowledged", state, server.removed)
	}
}
