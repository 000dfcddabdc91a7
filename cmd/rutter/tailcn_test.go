package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/log"
	"rutter/log/feed"
)

// capture is a CN's feed as lines, one for each frame; bookmarks, whose number is
// a matter of time, are only counted as how far it came.
type capture struct {
	lines   []string
	cluster log.UUID
	cursor  log.Cursor
	held    map[log.Scope]log.Seq
	until   log.Seq
	end     context.CancelFunc
	marks   chan log.Seq // of bookmarks
}

func (c *capture) add(frame string, seq log.Seq, rest ...any) error {
	c.lines = append(c.lines, frameLine(frame, seq, rest...))
	return nil
}

// frameLine is a frame as text; values are in JSON.
func frameLine(frame string, seq log.Seq, rest ...any) string {
	text := fmt.Sprintf("%s #%d", frame, seq)
	for _, v := range rest {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		text += " " + string(b)
	}
	return text
}

func (c *capture) Welcome(m *feed.Welcome) error { c.cluster = m.Head.Cluster; return nil }
func (c *capture) Reset(m *feed.Reset) error     { return c.add("reset", m.Head) }

func (c *capture) Entry(m *feed.Entry) error {
	e, err := log.DecodeEvent(m.Event)
	if err != nil {
		return err
	}
	return c.add("entry", m.Seq, log.Line{Seq: m.Seq, Chain: m.Chain, Event: e})
}

func (c *capture) Object(m *feed.Object) error {
	o, err := log.DecodeObject(m.Kind, m.ID, m.Bytes)
	if err != nil {
		return err
	}
	return c.add("object", m.Seq, m.Scope.String(), m.Kind.String(), m.ID, o)
}

func (c *capture) ScopeBegin(m *feed.ScopeBegin) error {
	return c.add("scope_begin", m.AsOf, m.Scope.String(), m.Count)
}

func (c *capture) ScopeEnd(m *feed.ScopeEnd) error {
	c.held[m.Scope] = m.AsOf
	return c.add("scope_end", m.AsOf, m.Scope.String(), m.Count)
}

func (c *capture) ScopeDropped(m *feed.ScopeDropped) error {
	delete(c.held, m.Scope)
	return c.add("scope_dropped", m.At, m.Scope.String())
}

func (c *capture) Bookmark(m *feed.Bookmark) error {
	c.cursor = log.Cursor{Cluster: c.cluster, Seq: m.Seq, Chain: m.Chain}
	if m.Seq >= c.until {
		c.end()
	}
	if c.marks != nil {
		c.marks <- m.Seq
	}
	return nil
}

// follow connects as the CN, from where it is, until it has been told of until.
func (c *capture) follow(t *testing.T, api *client.Client, server string, session uint64, until log.Seq) {
	t.Helper()
	conn, err := api.Feed(t.Context(), server)
	if err != nil {
		t.Error(err)
		return
	}
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	c.until, c.end, c.lines = until, end, nil
	hello := &feed.Hello{CN: exampleNode, Incarnation: 1, Session: session, Cursor: c.cursor}
	for scope, asOf := range c.held {
		hello.Scopes = append(hello.Scopes, feed.HeldScope{Scope: scope, AsOf: asOf})
	}
	err = feed.NewConn(conn).Follow(ctx, hello, c)
	if c.cursor.Seq < until {
		t.Errorf("the feed ended at %d, want %d: %v", c.cursor.Seq, until, err)
	}
}

// shown is a frame of GET /cns/UUID/feed as capture has it; "" of those that it leaves out.
func shown(t *testing.T, f client.Frame) string {
	t.Helper()
	switch f.Frame {
	case "bookmark":
		return ""
	case "entry":
		return frameLine(f.Frame, f.Seq, f.Entry)
	case "object":
		return frameLine(f.Frame, f.Seq, f.Scope, f.Kind, f.ID, f.Object)
	case "scope_begin", "scope_end":
		return frameLine(f.Frame, f.Seq, f.Scope, f.Count)
	case "scope_dropped":
		return frameLine(f.Frame, f.Seq, f.Scope)
	}
	t.Errorf("frame %+v", f)
	return ""
}

var exampleNode = log.UUID{0: 0x57, 6: 0x40, 8: 0x80, 15: 1}

// tailBed is a cluster with two CNs, two fabrics, and NICs on both.
type tailBed struct {
	api     *client.Client
	fabrics [2]log.UUID
	owner   log.UUID
	other   log.UUID // the second CN
}

func newTailBed(t *testing.T, urls []string) *tailBed {
	t.Helper()
	api, err := client.New(client.Config{Servers: urls[:1], Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	b := &tailBed{api: api, owner: client.NewChangeID(), other: log.UUID{0: 0x57, 6: 0x40, 8: 0x80, 15: 2}}
	at := netip.MustParseAddr
	b.change(t, log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: "u"}})
	for i := range b.fabrics {
		b.fabrics[i] = client.NewChangeID()
		b.change(t, log.Op{
			Action: log.Create, Kind: log.KindNetwork, Set: strings.Fields("fabric mtu name nic_tag owner_uuids provision_end_ip provision_start_ip subnet uuid vnet_id"),
			Object: &log.Network{
				UUID: b.fabrics[i], Name: fmt.Sprintf("f%d", i), NICTag: "u", Fabric: true, VNetID: uint32(7 + i), MTU: 1400, OwnerUUIDs: []log.UUID{b.owner},
				Subnet: netip.MustParsePrefix("10.0.0.0/24"), ProvisionStart: at("10.0.0.5"), ProvisionEnd: at("10.0.0.250"),
			},
		})
	}
	for i, cn := range []log.UUID{exampleNode, b.other} {
		b.change(t, log.Op{Action: log.Create, Kind: log.KindServer, Set: []string{"hostname", "uuid"}, Object: &log.Server{UUID: cn, Hostname: fmt.Sprintf("cn%d", i)}})
	}
	return b
}

func (b *tailBed) change(t *testing.T, ops ...log.Op) log.Seq {
	t.Helper()
	result, err := b.api.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: ops})
	if err != nil {
		t.Fatal(err)
	}
	return result.Last
}

// nic puts a NIC of a CN on a fabric.
func (b *tailBed) nic(t *testing.T, n byte, cn log.UUID, fabric int) log.Seq {
	t.Helper()
	return b.change(t, log.Op{
		Action: log.Create, Kind: log.KindNIC, Set: strings.Fields("belongs_to_type belongs_to_uuid cn_uuid mac network_uuid owner_uuid"),
		Object: &log.NIC{MAC: log.MAC{2, 5: n}, BelongsToType: "zone", BelongsToUUID: b.owner, CNUUID: cn, OwnerUUID: b.owner, NetworkUUID: b.fabrics[fabric]},
	})
}

// `rutter log tail --cn` shows what the CN's own connection brings: the same
// frames in the same order.
func TestTailOfACNIsItsFeed(t *testing.T) {
	c := startCluster(t)
	b := newTailBed(t, c.urls)
	first := b.nic(t, 1, exampleNode, 0)
	feeds := &capture{held: make(map[log.Scope]log.Seq)}
	feeds.follow(t, b.api, c.urls[0], 1, first)
	if len(feeds.held) < 3 {
		t.Fatalf("held at first: %v", feeds.held)
	}
	b.nic(t, 2, b.other, 0) // on the same fabric
	b.nic(t, 3, b.other, 1) // of no concern
	b.change(t, log.Op{Action: log.Update, Kind: log.KindNICTag, ID: "u", Set: []string{"mtu"}, Object: &log.NICTag{Name: "u", MTU: 9000}})
	last := b.change(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: log.MAC{2, 5: 2}.String()})
	feeds.follow(t, b.api, c.urls[0], 2, last)
	code, out, errs := rutter(t, "log", "tail", "--cn", exampleNode.String(), "-n", fmt.Sprint(last-first), "-o", "json", "-s", c.urls[0])
	if code != 0 {
		t.Fatalf("log tail: exit code %d, %s", code, errs)
	}
	var got []string
	for decoder := json.NewDecoder(bytes.NewBufferString(out)); decoder.More(); {
		var f client.Frame
		if err := decoder.Decode(&f); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if line := shown(t, f); line != "" {
			got = append(got, line)
		}
	}
	if want := feeds.lines; !slices.Equal(got, want) || len(want) != 3 {
		t.Errorf("the tail is\n%s\nthe feed is\n%s\nwant three entries", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	b.followed(t, c.urls[0], feeds, last)
}

// followed compares a tail that follows with the feed, while the CN gains a vnet
// and loses it again. The next change is made when both have had the last one.
func (b *tailBed) followed(t *testing.T, server string, feeds *capture, after log.Seq) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	steps := []func() log.Seq{
		func() log.Seq { return b.nic(t, 4, exampleNode, 1) },
		func() log.Seq { return b.nic(t, 5, b.other, 1) },
		func() log.Seq {
			return b.change(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: log.MAC{2, 5: 4}.String()})
		},
		func() log.Seq { return b.nic(t, 6, b.other, 1) }, // of no concern any more
	}
	feeds.marks = make(chan log.Seq, 64)
	until := after
	last := after + log.Seq(len(steps)) // each step is one entry
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		feeds.follow(t, b.api, server, 3, last)
	}()
	var got []string
	for f, err := range b.api.Observe(ctx, exampleNode, after) {
		if err != nil {
			t.Fatal(err)
		}
		if line := shown(t, f); line != "" {
			got = append(got, line)
		}
		if f.Frame != "bookmark" || f.Seq < until {
			continue
		}
		for marked := log.Seq(0); marked < until; {
			select {
			case marked = <-feeds.marks:
			case <-ctx.Done():
				t.Fatalf("the feed has no bookmark at %d", until)
			}
		}
		if len(steps) == 0 {
			break
		}
		until = steps[0]()
		steps = steps[1:]
	}
	<-ended
	want := feeds.lines
	if !slices.Equal(got, want) || !slices.ContainsFunc(want, func(s string) bool { return strings.HasPrefix(s, "scope_dropped") }) || len(want) < 6 {
		t.Errorf("the tail that follows is\n%s\nthe feed is\n%s\nwant a scope to come and to be dropped", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
