package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/feed"
)

// steps are the random changes of a history. Some are refused; that is part of it.
func (b *bed) step(t *rapid.T) {
	networks := []log.UUID{fabricA, fabricB, external}
	cns := []log.UUID{cn1, cn2, cn3}
	network := rapid.SampledFrom(networks).Draw(t, "network")
	cn := rapid.SampledFrom(cns).Draw(t, "cn")
	mac := fmt.Sprintf("02:00:00:00:00:%02x", rapid.IntRange(0, 7).Draw(t, "nic"))
	switch rapid.IntRange(0, 9).Draw(t, "step") {
	case 0, 1, 2:
		b.call("POST", fmt.Sprintf("/networks/%s/nics", network), `{"mac":"`+mac+`",`+nicBody(network, cn)[1:])
	case 3, 4:
		b.call("DELETE", "/nics/"+mac, "")
	case 5:
		b.call("PUT", "/nics/"+mac, fmt.Sprintf(`{"cn_uuid":%q}`, cn))
	case 6:
		owner := ownerA
		if network == fabricB {
			owner = ownerB
		}
		b.call("PUT", "/nics/"+mac, fmt.Sprintf(`{"network_uuid":%q,"owner_uuid":%q}`, network, owner))
	case 7:
		b.call("PUT", "/networks/"+network.String(), fmt.Sprintf(`{"description":"%d"}`, rapid.IntRange(0, 3).Draw(t, "text")))
	case 8:
		i := rapid.IntRange(0, 2).Draw(t, "underlay")
		id := fmt.Sprintf("/nics/"+underlayMAC, i+1)
		if w := b.call("GET", id, ""); w.Code == 200 {
			b.call("DELETE", id, "")
		} else {
			b.underlay(i)
		}
	case 9:
		b.call("POST", "/changes", fmt.Sprintf(`{"ops":[{"action":"delete","kind":"nic","id":%q},{"action":"create","kind":"nic","object":{"mac":%q,"network_uuid":%q,%s}]}`,
			mac, mac, network, nicBody(network, cn)[1:]))
	}
}

// A subscriber that follows any history, with broken connections, servers that
// compact, and changes while it follows, holds at each bookmark what its scopes
// contain at that seq.
func TestFeedFollowsAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBed(t)
		b.furnish()
		m := newMirror(rapid.SampledFrom([]log.UUID{cn1, cn2}).Draw(t, "me"))
		m.check = b.compare
		for range rapid.IntRange(1, 8).Draw(t, "connections") {
			for range rapid.IntRange(0, 12).Draw(t, "changes while away") {
				b.step(t)
			}
			if rapid.IntRange(0, 9).Draw(t, "compact") == 0 {
				b.store.compact()
				b.s.tail.mu.Lock() // streams that just broke may still look
				b.s.tail.items = nil
				b.s.tail.mu.Unlock()
			}
			b.live(t, m)
		}
	})
}

// live connects m and makes changes while it follows: after each bookmark at
// the head some, until there were enough; then the connection breaks anywhere.
func (b *bed) live(t *rapid.T, m *mirror) {
	rounds := rapid.IntRange(0, 4).Draw(t, "rounds")
	breaks := rapid.IntRange(0, 40).Draw(t, "breaks after") // frames
	m.until, m.calls = 1<<62, nil
	marks := make(chan log.Seq)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m.check = func(m *mirror, at log.Seq) error {
		if err := b.compare(m, at); err != nil {
			return err
		}
		select {
		case marks <- at:
		case <-ctx.Done():
		}
		return nil
	}
	h := &breaking{mirror: m, left: breaks, ends: rounds == 0}
	c := b.connect(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Follow(ctx, m.hello(), h) }()
	var err error
	for running := true; running; {
		select {
		case at := <-marks:
			if at < b.store.Head().Seq {
				continue
			}
			if rounds == 0 {
				cancel()
				continue
			}
			rounds--
			before := b.store.Head().Seq
			for range rapid.IntRange(1, 4).Draw(t, "changes") {
				b.step(t)
			}
			if b.store.Head().Seq == before {
				rounds = 0
				cancel() // nothing comes to wait for
			}
		case err = <-ended:
			running = false
		}
	}
	<-c.done
	if ctx.Err() != nil && errors.Is(err, io.EOF) {
		err = ctx.Err() // the server's end heard of the cancellation first
	}
	if !errors.Is(err, context.Canceled) && !errors.Is(err, errBroken) {
		t.Fatalf("stream of %s: %v; calls %q", m.cn, err, m.calls)
	}
}

var errBroken = errors.New("the connection broke")

// breaking is a handler whose connection breaks after some frames, if it ends
// at all.
type breaking struct {
	*mirror
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
	return errors.Join(h.tick(), h.mirror.Entry(m))
}

func (h *breaking) Object(m *feed.Object) error {
	return errors.Join(h.tick(), h.mirror.Object(m))
}

func (h *breaking) ScopeEnd(m *feed.ScopeEnd) error {
	return errors.Join(h.tick(), h.mirror.ScopeEnd(m))
}
