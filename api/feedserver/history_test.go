package feedserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"pgregory.net/rapid"

	"rutter/api/internal/apitest"
	"rutter/log"
	"rutter/log/feed"
)

// steps are the random changes of a history. Some are refused; that is part of it.
func (b *bed) step(t *rapid.T) {
	networks := []log.UUID{apitest.FabricA, apitest.FabricB, apitest.External}
	cns := []log.UUID{apitest.CN1, apitest.CN2, apitest.CN3}
	network := rapid.SampledFrom(networks).Draw(t, "network")
	cn := rapid.SampledFrom(cns).Draw(t, "cn")
	mac := fmt.Sprintf("02:00:00:00:00:%02x", rapid.IntRange(0, 7).Draw(t, "nic"))
	switch rapid.IntRange(0, 9).Draw(t, "step") {
	case 0, 1, 2:
		b.Call("POST", fmt.Sprintf("/networks/%s/nics", network), `{"mac":"`+mac+`",`+apitest.NICBody(network, cn)[1:])
	case 3, 4:
		b.Call("DELETE", "/nics/"+mac, "")
	case 5:
		b.Call("PUT", "/nics/"+mac, fmt.Sprintf(`{"cn_uuid":%q}`, cn))
	case 6:
		owner := apitest.OwnerA
		if network == apitest.FabricB {
			owner = apitest.OwnerB
		}
		b.Call("PUT", "/nics/"+mac, fmt.Sprintf(`{"network_uuid":%q,"owner_uuid":%q}`, network, owner))
	case 7:
		b.Call("PUT", "/networks/"+network.String(), fmt.Sprintf(`{"description":"%d"}`, rapid.IntRange(0, 3).Draw(t, "text")))
	case 8:
		i := rapid.IntRange(0, 2).Draw(t, "underlay")
		id := fmt.Sprintf("/nics/"+apitest.UnderlayMAC, i+1)
		if w := b.Call("GET", id, ""); w.Code == 200 {
			b.Call("DELETE", id, "")
		} else {
			b.Underlay(i)
		}
	case 9:
		b.Call("POST", "/changes", fmt.Sprintf(`{"ops":[{"action":"delete","kind":"nic","id":%q},{"action":"create","kind":"nic","object":{"mac":%q,"network_uuid":%q,%s}]}`,
			mac, mac, network, apitest.NICBody(network, cn)[1:]))
	}
}

// A subscriber that follows any history, with broken connections, servers that
// compact, and changes while it follows, holds at each bookmark what its scopes
// contain at that seq.
func TestFeedFollowsAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBed(t)
		b.Furnish()
		m := apitest.NewMirror(rapid.SampledFrom([]log.UUID{apitest.CN1, apitest.CN2}).Draw(t, "me"))
		m.Check = b.Compare
		for range rapid.IntRange(1, 8).Draw(t, "connections") {
			for range rapid.IntRange(0, 12).Draw(t, "changes while away") {
				b.step(t)
			}
			if rapid.IntRange(0, 9).Draw(t, "compact") == 0 {
				b.Store.Compact()
				b.restart()
			}
			b.live(t, m)
		}
	})
}

// live connects m and makes changes while it follows: after each bookmark at
// the head some, until there were enough; then the connection breaks anywhere.
func (b *bed) live(t *rapid.T, m *apitest.Mirror) {
	rounds := rapid.IntRange(0, 4).Draw(t, "rounds")
	breaks := rapid.IntRange(0, 40).Draw(t, "breaks after") // frames
	m.Until, m.Calls = 1<<62, nil
	marks := make(chan log.Seq)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m.Check = func(m *apitest.Mirror, at log.Seq) error {
		if err := b.Compare(m, at); err != nil {
			return err
		}
		select {
		case marks <- at:
		case <-ctx.Done():
		}
		return nil
	}
	h := &breaking{Mirror: m, left: breaks, ends: rounds == 0}
	c := b.connect(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Follow(ctx, m.Hello(), h) }()
	var err error
	for running := true; running; {
		select {
		case at := <-marks:
			if at < b.Store.Head().Seq {
				continue
			}
			if rounds == 0 {
				cancel()
				continue
			}
			rounds--
			before := b.Store.Head().Seq
			for range rapid.IntRange(1, 4).Draw(t, "changes") {
				b.step(t)
			}
			if b.Store.Head().Seq == before {
				rounds = 0
				cancel() // nothing comes to wait for
			}
		case err = <-ended:
			running = false
		}
	}
	<-c.Done
	if ctx.Err() != nil && errors.Is(err, io.EOF) {
		err = ctx.Err() // the server's end heard of the cancellation first
	}
	if !errors.Is(err, context.Canceled) && !errors.Is(err, errBroken) {
		t.Fatalf("stream of %s: %v; calls %q", m.CN, err, m.Calls)
	}
}

var errBroken = errors.New("the connection broke")

// breaking is a handler whose connection breaks after some frames, if it ends
// at all.
type breaking struct {
	*apitest.Mirror
	left int
	ends bool
}

func (h *breaking) tick() error {
	if h.left--; h.ends && h.left < 0 {
		return errBroken
	}
	return nil
}

func (h *breaking) Entry(m *feed.Entry) error {
	return errors.Join(h.tick(), h.Mirror.Entry(m))
}

func (h *breaking) Object(m *feed.Object) error {
	return errors.Join(h.tick(), h.Mirror.Object(m))
}

func (h *breaking) ScopeEnd(m *feed.ScopeEnd) error {
	return errors.Join(h.tick(), h.Mirror.ScopeEnd(m))
}
