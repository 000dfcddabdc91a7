package projections

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

// even draws a number from 0 to n-1, each about as often; rapid itself prefers
// small ones, which would all be one kind of operation.
func even(t *rapid.T, n int, what string) int {
	return int(rapid.Uint32().Draw(t, what)*2654435761>>16) % n
}

func drawUUID(t *rapid.T, from, n int, what string) log.UUID {
	return id(uint64(from + even(t, n, what)))
}

var modelSubnets = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/29"), netip.MustParsePrefix("10.0.0.8/29"),
	netip.MustParsePrefix("10.0.0.0/28"), netip.MustParsePrefix("fd00::/126"),
}

// drawOp draws an operation on one of few objects, so that they meet.
func drawOp(t *rapid.T) log.Op {
	pick := even(t, 100, "op")
	switch {
	case pick < 3:
		return log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name", "mtu"}, Object: drawTag(t)}
	case pick < 5:
		tag := drawTag(t)
		return log.Op{Action: log.Update, Kind: log.KindNICTag, ID: tag.Name, Set: []string{"mtu"}, Object: tag}
	case pick < 12:
		return drawNetwork(t)
	case pick < 17:
		n := &log.Network{Gateway: drawIP(t)}
		return log.Op{Action: log.Update, Kind: log.KindNetwork, ID: drawUUID(t, 30, 4, "net").String(), Set: []string{"gateway"}, Object: n}
	case pick < 19:
		return log.Op{Action: log.Create, Kind: log.KindServer, Set: []string{"uuid"}, Object: &log.Server{UUID: drawUUID(t, 11, 3, "cn")}}
	case pick < 24:
		vm := &log.VM{UUID: drawUUID(t, 21, 3, "vm"), OwnerUUID: id(1), ServerUUID: drawUUID(t, 11, 3, "cn"), State: "running"}
		return log.Op{Action: log.Create, Kind: log.KindVM, Set: []string{"uuid"}, Object: vm}
	case pick < 50:
		return drawNIC(t)
	case pick < 84:
		return drawNICUpdate(t)
	default:
		return drawDelete(t)
	}
}

func drawTag(t *rapid.T) *log.NICTag {
	return &log.NICTag{Name: rapid.SampledFrom([]string{"one", "two"}).Draw(t, "tag"), MTU: rapid.SampledFrom([]uint32{1500, 2000}).Draw(t, "mtu")}
}

func drawNetwork(t *rapid.T) log.Op {
	n := &log.Network{
		UUID: drawUUID(t, 30, 4, "net"), Name: "n", NICTag: rapid.SampledFrom([]string{"one", "two"}).Draw(t, "tag"),
		Subnet: rapid.SampledFrom(modelSubnets).Draw(t, "subnet"),
	}
	if even(t, 4, "fabric") > 0 {
		n.Fabric, n.VNetID, n.OwnerUUIDs = true, uint32(10+10*even(t, 2, "vnet")), []log.UUID{drawUUID(t, 1, 2, "owner")}
	}
	return log.Op{Action: log.Create, Kind: log.KindNetwork, Set: []string{"name"}, Object: n}
}

func drawIP(t *rapid.T) netip.Addr {
	if even(t, 3, "no ip") > 0 {
		return netip.Addr{}
	}
	return rapid.SampledFrom(append(addresses(modelSubnets[2]), addresses(modelSubnets[3])...)).Draw(t, "ip")
}

func drawMAC(t *rapid.T) log.MAC {
	return log.MAC{0, 0, 0, 0, 0, byte(even(t, 10, "mac"))} // 0: to be drawn
}

func drawNIC(t *rapid.T) log.Op {
	n := &log.NIC{MAC: drawMAC(t), OwnerUUID: drawUUID(t, 1, 2, "owner"), IP: drawIP(t), Primary: even(t, 2, "primary") > 0}
	if even(t, 7, "server") == 3 {
		n.BelongsToType, n.BelongsToUUID, n.Underlay = "server", drawUUID(t, 11, 3, "cn"), even(t, 2, "underlay") > 0
	} else {
		n.BelongsToType, n.BelongsToUUID = "zone", drawUUID(t, 21, 3, "vm")
		if even(t, 2, "has cn") > 0 {
			n.CNUUID = drawUUID(t, 11, 3, "cn")
		}
	}
	if even(t, 6, "on a network") > 0 {
		n.NetworkUUID = drawUUID(t, 30, 4, "net")
	}
	return log.Op{Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_uuid"}, Object: n}
}

func drawNICUpdate(t *rapid.T) log.Op {
	n := &log.NIC{
		IP: drawIP(t), CNUUID: drawUUID(t, 11, 3, "cn"), Primary: even(t, 2, "primary") > 0,
		State: rapid.SampledFrom([]string{"provisioning", "running"}).Draw(t, "state"), Underlay: even(t, 2, "underlay") > 0,
	}
	if even(t, 6, "on a network") > 0 {
		n.NetworkUUID = drawUUID(t, 30, 4, "net")
	}
	fields := []string{"cn_uuid", "ip", "network_uuid", "primary", "state", "underlay"}
	set := rapid.SliceOfNDistinct(rapid.SampledFrom(fields), 1, 1+even(t, 3, "fields"), rapid.ID).Draw(t, "set")
	slices.Sort(set)
	mac := log.MAC{5: byte(1 + even(t, 9, "mac"))}
	return log.Op{Action: log.Update, Kind: log.KindNIC, ID: mac.String(), Set: set, Object: n, IfMatch: drawMatch(t)}
}

// drawMatch draws no revision mostly, else one that may be right.
func drawMatch(t *rapid.T) log.Revision {
	return log.Revision(max(0, even(t, 16, "if-match")-12))
}

func drawDelete(t *rapid.T) log.Op {
	mac := log.MAC{5: byte(1 + even(t, 9, "mac"))}
	op := log.Op{Action: log.Delete, Kind: log.KindNIC, ID: mac.String(), IfMatch: drawMatch(t)}
	switch even(t, 15, "deleted") {
	case 0:
		op.Kind, op.ID = log.KindNICTag, "one"
	case 1, 2:
		op.Kind, op.ID = log.KindNetwork, drawUUID(t, 30, 4, "net").String()
	case 3:
		op.Kind, op.ID = log.KindServer, drawUUID(t, 11, 3, "cn").String()
	case 4:
		op.Kind, op.ID = log.KindVM, drawUUID(t, 21, 3, "vm").String()
	}
	return op
}

// TestAgainstModel drives random changes against the plain model: the same are
// accepted, with the same objects, addresses, lookups and interest; a CN's
// cache that is fed by the rules of the feed desires the same links; and state
// folded from the log or loaded from records answers alike.
func TestAgainstModel(t *testing.T) {
	accepted, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		w, m := newWorld(rt), newModel()
		feed := newFeed(id(11))
		feed.watch(w)
		m.begin(w)
		m.hear(w.events, 0)
		for range 1 + even(rt, 60, "changes") {
			ops := make([]log.Op, rapid.SampledFrom([]int{1, 1, 1, 2, 5}).Draw(rt, "ops"))
			for i := range ops {
				ops[i] = drawOp(rt)
				if ops[i].Action != log.Create && even(rt, 6, "if-seq") == 3 {
					ops[i].IfSeq = m.seqs[revKey(ops[i].Kind, ops[i].ID)] + log.Seq(even(rt, 3, "later")/2)
				}
			}
			c := w.change(ops...)
			from := len(w.events)
			result := w.try(c)
			next, ok := m.change(c, result)
			if ok != (result.Refusal == nil) {
				rt.Fatalf("%+v: the model says %v, the state %v", ops, ok, result.Refusal)
			}
			if !ok {
				refused++
				continue
			}
			accepted++
			m = next
			m.hear(w.events, from)
			m.compare(rt, w.s)
			if int(result.Events) != len(w.events)-from {
				rt.Fatalf("%d events, the result says %d", len(w.events)-from, result.Events)
			}
			feed.compare(rt, w.s)
		}
		replayed, loaded := NewState(), NewSmallState()
		encoder := log.NewEncoder()
		for i, e := range w.events {
			_, body, err := encoder.EventAndBody(e)
			if err != nil {
				rt.Fatal(err)
			}
			if _, err := replayed.ApplyEncoded(log.Seq(i+1), e, body); err != nil {
				rt.Fatal(err)
			}
		}
		sameAnswers(rt, replayed, w.s)
		loaded.SetTime(w.s.Time())
		for kind := range log.Kind(20) {
			for r := range w.s.List(kind) {
				if err := loaded.Load(r); err != nil {
					rt.Fatal(err)
				}
			}
		}
		sameAnswers(rt, loaded, w.s)
	})
	t.Logf("%d changes accepted, %d refused", accepted, refused)
	if accepted < refused/10 {
		t.Errorf("only %d of %d changes were accepted: the test sees too little", accepted, accepted+refused)
	}
}

// begin sets up what random changes would seldom find together: tags, CNs with
// underlay addresses, VMs, fabrics of two owners and a NIC of each VM.
func (m *model) begin(w *world) {
	create := func(o log.Object) {
		c := w.change(log.Op{Action: log.Create, Kind: o.Kind(), Object: o})
		result := w.try(c)
		next, ok := m.change(c, result)
		if !ok || result.Refusal != nil {
			w.t.Fatalf("%+v: the model says %v, the state %v", o, ok, result.Refusal)
		}
		*m = *next
	}
	create(&log.NICTag{Name: "one", MTU: 1500})
	create(&log.NICTag{Name: "two", MTU: 2000})
	create(&log.Network{UUID: id(30), Name: "n", NICTag: "one", Subnet: modelSubnets[2]})
	for n := range uint64(2) {
		create(&log.Network{
			UUID: id(31 + n), Name: "n", NICTag: "two", Subnet: modelSubnets[n], Fabric: true,
			VNetID: uint32(10 + 10*n), OwnerUUIDs: []log.UUID{id(1 + n)},
		})
	}
	for n := range uint64(3) {
		create(&log.Server{UUID: id(11 + n)})
		create(&log.VM{UUID: id(21 + n), OwnerUUID: id(1), ServerUUID: id(11 + n), State: "running"})
		create(&log.NIC{
			MAC: log.MAC{5: byte(1 + n)}, BelongsToType: "server", BelongsToUUID: id(11 + n), OwnerUUID: id(1),
			NetworkUUID: id(30), Underlay: true,
		})
		create(&log.NIC{
			MAC: log.MAC{5: byte(4 + n)}, BelongsToType: "zone", BelongsToUUID: id(21 + n), OwnerUUID: id(1 + n%2),
			NetworkUUID: id(31 + n%2),
		})
	}
}

// feed keeps a CN's cache by the rules of DESIGN section 6 and SAFETY F1, F2.
type feed struct {
	cn    log.UUID
	cache *State
	held  []log.Scope
}

func newFeed(cn log.UUID) *feed {
	return &feed{cn, NewSmallState(), []log.Scope{log.AllScope(), log.CNScope(cn)}}
}

// watch has the feed see each event that w applies.
func (f *feed) watch(w *world) {
	w.seen = func(seq log.Seq, e *log.Event, d Delta) {
		if slices.ContainsFunc(d.Scopes, f.holds) {
			f.hear(w, seq, e)
		}
		for _, g := range d.Gained {
			switch {
			case g.CN == f.cn: // the server adds the scope
				f.held = tidyScopes(append(f.held, g.Scope))
				f.load(w, slices.Collect(w.s.InScope(g.Scope)))
			case g.Scope.Type == log.ScopeVNet && f.holds(g.Scope): // and sends what entered without an event
				f.load(w, slices.Collect(w.s.UnderlayNICs(g.CN)))
			}
		}
		for _, g := range d.Lost {
			if g.CN == f.cn { // the server drops the scope
				f.held = slices.DeleteFunc(f.held, func(scope log.Scope) bool { return scope == g.Scope })
				for _, r := range f.cache.Orphans(f.held) {
					f.cache.Drop(r.Object.Kind(), r.Object.ID())
				}
			}
		}
	}
}

func (f *feed) holds(scope log.Scope) bool { return slices.Contains(f.held, scope) }

// hear folds an event, and drops what it took out of sight: its object, and the
// underlay NICs of a CN whose last NIC left a vnet.
func (f *feed) hear(w *world, seq log.Seq, e *log.Event) {
	d, err := f.cache.Fold(seq, e)
	if err != nil {
		w.t.Fatal(err)
	}
	left := []Record{{Object: e.Object}}
	for _, g := range d.Lost {
		left = slices.AppendSeq(left, f.cache.UnderlayNICs(g.CN))
	}
	for _, r := range left {
		kind, id := r.Object.Kind(), r.Object.ID()
		if !slices.ContainsFunc(f.cache.ScopesOf(kind, id), f.holds) {
			f.cache.Drop(kind, id)
		}
	}
}

func (f *feed) load(w *world, records []Record) {
	for _, r := range records {
		if err := f.cache.Load(r); err != nil {
			w.t.Fatal(err)
		}
	}
}

// compare holds the cache against what the server would send of its scopes.
func (f *feed) compare(t tester, s *State) {
	if got, want := s.Interest(f.cn), f.held; !slices.Equal(got, want) {
		t.Fatalf("the CN holds %v, its interest is %v", want, got)
	}
	whole := NewState()
	for _, scope := range f.held {
		if got, want := f.cache.Digest(scope), s.Digest(scope); got != want {
			t.Fatalf("digest of %s is %s in the CN's cache, %s in the whole state", scope, got, want)
		}
		sameDigest(t, s, scope)
		sameDigest(t, f.cache, scope)
		for r := range s.InScope(scope) {
			if err := whole.Load(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.cache.time, whole.time = 0, 0
	if got, want := f.cache.Dump(), whole.Dump(); !bytes.Equal(got, want) {
		t.Fatalf("the CN's cache is\n%s\nwant\n%s\nholding %v", got, want, f.held)
	}
	sameDesired(t, f.cache.DesiredLinks(f.cn), s.DesiredLinks(f.cn))
}
