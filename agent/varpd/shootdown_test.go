package varpd

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"rutter/agent/link/plan"
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

// TestAnswerOfAnOlderCache (SAFETY F7): after a shootdown, one cache of the server has the new
// place of a MAC, and another one repeats the old one: the kernel keeps the new one. What is
// told in a time at which no cache can be older is believed.
func TestAnswerOfAnOlderCache(t *testing.T) {
	d, kernel := newScanned(t)
	d.answer(t, linkKey{"z1", "fabric1"}, 9)
	address := key{vnet: 5, ip: netip.AddrFrom4([4]byte{172, 16, 0, 9})}
	mac := key{vnet: 5, mac: log.MAC{2, 0, 0, 0, 0, 9}}
	places := []varp.Underlay{}
	for node := range byte(4) {
		places = append(places, varp.Underlay{Addr: netip.AddrFrom4([4]byte{10, 0, 0, node}), Port: 4789})
	}
	now := time.Now()
	until := now.Add(d.cfg.cacheWindow())
	d.doubt(mac, until)
	d.doubt(address, until)
	for _, step := range []struct {
		what   string
		asked  key
		at     time.Time
		says   int // the node that has the MAC
		kernel int
	}{
		{"the MAC's cache is new", mac, now, 3, 3},
		{"the address's cache is old", address, now, 2, 3},
		{"a moment before the end", address, until.Add(-time.Nanosecond), 2, 3},
		{"the address's cache is new", address, now, 3, 3},
		{"it moved back", address, until, 2, 2},
	} {
		a := &query{key: step.asked, sentAt: step.at}
		got := resolution{key: step.asked, at: places[step.says]}
		if step.asked == address {
			got.mac = mac.mac
		}
		var steps batchSteps
		d.apply(a, &got, now, &steps)
		if errs := kernel.Do(t.Context(), steps.all()); errs != nil {
			t.Fatal(errors.Join(errs...))
		}
		fdb := kernel.Find(plan.LinkKey{Name: plan.VXLANName(5)}).FDB
		if len(fdb) != 1 || fdb[0].Dst != places[step.kernel].Addr {
			t.Errorf("%s: the kernel has %v, want it at %s", step.what, fdb, places[step.kernel].Addr)
		}
	}
}
