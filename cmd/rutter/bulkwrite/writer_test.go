package bulkwrite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

// disorder decides the changes that are under way in any order, by the rules of the
// servers, and is overloaded at times: what a write stream may be at worst.
type disorder struct {
	mu    sync.Mutex
	rng   *rand.Rand
	state *projections.State
	seq   log.Seq
	open  []*asked
	most  int   // under way at once
	fail  error // of each sixth change, once
	count int
}

type asked struct {
	change *log.Change
	answer chan error
	result log.Result
}

func (d *disorder) Start(_ context.Context, c *log.Change) (func(context.Context) (log.Result, error), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := &asked{change: c, answer: make(chan error, 1)}
	d.open = append(d.open, a)
	d.most = max(d.most, len(d.open))
	return func(ctx context.Context) (log.Result, error) {
		d.decide()
		select {
		case err := <-a.answer:
			return a.result, err
		case <-ctx.Done():
			return a.result, ctx.Err()
		}
	}, nil
}

// decide decides one of those that are under way.
func (d *disorder) decide() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.open) == 0 {
		return
	}
	at := d.rng.IntN(len(d.open))
	a := d.open[at]
	d.open = slices.Delete(d.open, at, at+1)
	if d.count++; d.fail != nil && d.count%6 == 0 {
		a.answer <- d.fail
		return
	}
	events, result := rules.Decide(d.state, a.change)
	a.result = result
	if result.Refusal != nil {
		a.answer <- result.Refusal
		return
	}
	for _, e := range events {
		d.seq++
		if _, err := d.state.Apply(d.seq, e); err != nil {
			a.answer <- err
			return
		}
	}
	a.answer <- nil
}

func id(sort byte, n int) log.UUID {
	return log.UUID{0: sort, 6: 0x40, 8: 0x80, 14: byte(n >> 8), 15: byte(n)}
}

// cloud makes changes at random that are accepted one after another, of few objects, so
// that they refer to each other and follow each other often.
func cloud(t *testing.T, rng *rand.Rand, n int) (changes []*log.Change, touched [][]Touch, end *projections.State) {
	t.Helper()
	end = projections.NewState()
	names := []string{"a", "b", "c"}
	for seq := log.Seq(0); len(changes) < n; {
		op := draw(rng, names)
		if op.Object != nil && op.Action == log.Create {
			for _, d := range log.Diff(log.NewObject(op.Kind), op.Object) {
				op.Set = append(op.Set, d.Path)
			}
			slices.Sort(op.Set)
		}
		c := &log.Change{ID: id('c', len(changes)), Actor: "test", Seed: 1, Time: log.Time(1<<60 + len(changes)), Ops: []log.Op{op}}
		events, result := rules.Decide(end, c)
		if result.Refusal != nil || len(events) == 0 {
			continue
		}
		var all []Touch
		ops := []log.Op{}
		for _, e := range events {
			seq++
			if _, err := end.Apply(seq, e); err != nil {
				t.Fatal(err)
			}
			touch := Touch{Kind: e.Kind, Action: e.Action, ID: e.ID, After: e.Object}
			again := log.Op{Action: e.Action, Kind: e.Kind, ID: e.ID, Object: e.Object}
			switch e.Action {
			case log.Create:
				again.ID = ""
				for _, d := range log.Diff(log.NewObject(e.Kind), e.Object) {
					again.Set = append(again.Set, d.Path)
				}
			case log.Delete:
				again.Object = nil
			case log.Update:
				for _, d := range e.Changed {
					if d.Path != "modified_timestamp" {
						again.Set = append(again.Set, d.Path)
					}
				}
				if slices.Contains(again.Set, "network_uuid") && !slices.Contains(again.Set, "ip") {
					again.Set = append(again.Set, "ip") // or another one is chosen
				}
				if slices.ContainsFunc(e.Changed, func(d log.FieldChange) bool { return !IsPlain(d.Path) }) {
					before, err := log.Revert(e.Object, e.Changed)
					if err != nil {
						t.Fatal(err)
					}
					touch.Before = before
				}
			}
			slices.Sort(again.Set)
			ops, all = append(ops, again), append(all, touch)
		}
		changes = append(changes, &log.Change{ID: c.ID, Actor: "test", Time: c.Time, Ops: ops})
		touched = append(touched, all)
	}
	return changes, touched, end
}

// draw draws an operation, which may be refused.
func draw(rng *rand.Rand, names []string) log.Op {
	create := func(o log.Object) log.Op { return log.Op{Action: log.Create, Kind: o.Kind(), Object: o} }
	remove := func(o log.Object) log.Op { return log.Op{Action: log.Delete, Kind: o.Kind(), ID: o.ID()} }
	update := func(o log.Object, id string, set ...string) log.Op {
		return log.Op{Action: log.Update, Kind: o.Kind(), ID: id, Object: o, Set: set}
	}
	name := names[rng.IntN(len(names))]
	tag := &log.NICTag{Name: name, UUID: id('t', rng.IntN(9))}
	subnet := byte(rng.IntN(3))
	addr := func(last byte) log.IP { return log.IP{NetworkUUID: id('n', rng.IntN(5)), IP: ip(subnet, last)} }
	network := &log.Network{
		UUID: id('n', rng.IntN(5)), Name: names[rng.IntN(3)], NICTag: name, VLANID: uint32(2 + rng.IntN(2)),
		Subnet: prefix(subnet), ProvisionStart: ip(subnet, 1), ProvisionEnd: ip(subnet, 200),
	}
	vm := &log.VM{UUID: id('v', rng.IntN(4)), OwnerUUID: id('o', 1), State: "running", Quota: uint64(rng.IntN(9))}
	mac := log.MAC{0x92, 0xb8, 0, 0, 0, byte(rng.IntN(6))}
	nic := &log.NIC{MAC: mac, BelongsToType: "zone", BelongsToUUID: id('v', rng.IntN(4)), OwnerUUID: id('o', 1), NetworkUUID: id('n', rng.IntN(5)), IP: ip(subnet, byte(10+rng.IntN(3))), State: "running", Primary: rng.IntN(2) == 0}
	address := addr(byte(10 + rng.IntN(3)))
	address.Reserved = true
	switch rng.IntN(14) {
	case 0:
		return create(tag)
	case 1:
		return remove(tag)
	case 2, 3:
		return create(network)
	case 4:
		return remove(network)
	case 5:
		return update(network, network.ID(), "name")
	case 6:
		return create(vm)
	case 7:
		return update(vm, vm.ID(), "quota")
	case 8:
		return remove(vm)
	case 9, 10:
		return create(nic)
	case 11:
		return update(nic, mac.String(), [][]string{{"ip"}, {"primary"}, {"ip", "network_uuid"}}[rng.IntN(3)]...)
	case 12:
		return remove(nic)
	}
	if rng.IntN(2) == 0 {
		return remove(&address)
	}
	return create(&address)
}

// dump is the state without the times that deciding stamps, and without seqs: without what
// differs when changes that have nothing in common are decided in another order.
func dump(s *projections.State) string {
	var out bytes.Buffer
	for _, kind := range log.Kinds() {
		for r := range s.List(kind) {
			o := log.Clone(r.Object)
			if nic, is := o.(*log.NIC); is {
				nic.Created, nic.Modified = 0, 0
			}
			b, err := log.AppendObjectJSON(nil, o)
			fmt.Fprintf(&out, "%s %s %d %s %v\n", kind, o.ID(), r.Revision, b, err)
		}
	}
	return out.String()
}

// Whatever order the changes under way are decided in, and however often servers are
// overloaded, the end is that of one after another: with each object as often changed.
// The results come in the order of the changes.
func TestAnyOrderGivesTheSame(t *testing.T) {
	widest := 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		changes, touched, end := cloud(t, rng, 120)
		d := &disorder{rng: rng, state: projections.NewState()}
		if seed == 0 {
			d.fail = &client.BudgetError{After: time.Millisecond}
			changes, touched = changes[:40], touched[:40]
		}
		w := New(t.Context(), d, Options{UnderWay: 64})
		w.done = alone // from the first change on many at once
		settled := 0
		for i, c := range changes {
			err := w.Add(Item{Change: c, Touches: touched[i], Settled: func(_ log.Result, refused error) error {
				if settled != i || refused != nil {
					t.Errorf("seed %d: change %d is settled as number %d: %v", seed, i, settled, refused)
				}
				settled++
				return nil
			}})
			if err != nil {
				t.Fatalf("seed %d: change %d: %v", seed, i, err)
			}
		}
		if err := w.Wait(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got, want := dump(d.state), dump(end); len(changes) == 120 && got != want {
			t.Fatalf("seed %d:\n got %s\nwant %s", seed, got, want)
		}
		if len(w.things) > 0 || w.bytes != 0 || len(w.held) > 0 {
			t.Errorf("seed %d: %d things, %d bytes and %d items are left", seed, len(w.things), w.bytes, len(w.held))
		}
		widest = max(widest, d.most)
	}
	if widest < 3 {
		t.Errorf("at most %d changes were under way at once", widest)
	}
}

func tags(n int) (all []*log.Change) {
	for i := range n {
		all = append(all, &log.Change{ID: id('c', i), Actor: "test", Ops: []log.Op{{
			Action: log.Create, Kind: log.KindNICTag, Object: &log.NICTag{Name: fmt.Sprintf("t%d", i)}, Set: []string{"name"},
		}}})
	}
	return all
}

// A refusal ends the writing: what came before it is made, and said. With GoOn all else
// is made.
func TestARefusalInTheMiddle(t *testing.T) {
	for _, goOn := range []bool{false, true} {
		d := &disorder{rng: rand.New(rand.NewPCG(1, 2)), state: projections.NewState()}
		w := New(t.Context(), d, Options{GoOn: goOn})
		changes := tags(200)
		changes[100].Ops[0].Object = &log.NICTag{Name: "t7"} // is there
		var made, refused int
		var err error
		for i, c := range changes {
			if err = w.Add(Item{Change: c, Settled: func(_ log.Result, no error) error {
				if no != nil {
					refused = i
				} else if made++; i < 100 && made != i+1 {
					t.Errorf("%d is number %d", i, made)
				}
				return nil
			}}); err != nil {
				break
			}
		}
		err = errors.Join(err, w.Wait())
		if goOn && (err != nil || made != 199) || !goOn && (!errors.As(err, new(*RefusedError)) || made < 100) || refused != 100 {
			t.Errorf("go on %t: %d made, %d refused, %v", goOn, made, refused, err)
		}
		if _, there := d.state.Get(log.KindNICTag, "t99"); !there {
			t.Error("a change before the refused one was not made")
		}
	}
}

// silent answers nothing.
type silent struct{}

func (silent) Start(context.Context, *log.Change) (func(context.Context) (log.Result, error), error) {
	return func(ctx context.Context) (log.Result, error) {
		<-ctx.Done()
		return log.Result{}, fmt.Errorf("%w: %w", client.ErrUnavailable, ctx.Err())
	}, nil
}

// What is held is bounded by its number and its bytes, and servers that answer nothing end
// the writing.
func TestBounds(t *testing.T) {
	for _, test := range []struct{ size, most int }{{1, MaxHeld}, {MaxHeldBytes / 10, 10}, {2 * MaxHeldBytes, 1}} {
		w := New(t.Context(), silent{}, Options{Patience: 300 * time.Millisecond})
		added := 0
		var err error
		for err == nil {
			if err = w.Add(Item{Change: &log.Change{ID: id('c', added), Ops: []log.Op{{Action: log.Delete, Kind: log.KindNICTag, ID: "x"}}}, Size: test.size}); err == nil {
				added++
			}
		}
		if added > test.most || added == 0 || !errors.Is(err, client.ErrUnavailable) || w.Wait() == nil {
			t.Errorf("size %d: %d were held, want at most %d: %v", test.size, added, test.most, err)
		}
	}
}

// The progress has the rate, how much is done, and the time that is left.
func TestProgress(t *testing.T) {
	var out strings.Builder
	now := time.Unix(1000, 0)
	p := NewProgress(&out, false, "entries", func() time.Time { return now })
	p.Show(1, 1000)
	now = now.Add(10 * time.Second)
	p.Show(250, 1000)
	now = now.Add(10 * time.Second)
	p.Show(500, 0)
	p.End()
	want := "250 of 1000 entries, 25 %, 25/s, 30s left\n500 entries, 25/s\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	out.Reset()
	p = NewProgress(&out, true, "entries", func() time.Time { return now })
	now = now.Add(time.Second)
	p.Show(5, 10)
	p.End()
	if got := out.String(); got != "\r5 of 10 entries, 50 %, 5/s, 1s left\x1b[K\n" {
		t.Errorf("on a terminal %q", got)
	}
}

func prefix(third byte) netip.Prefix { return netip.PrefixFrom(ip(third, 0), 24) }

func ip(third, last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, third, last}) }
