package rules

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/internal/worldtest"
)

// asksSubnet is an operation that has a subnet chosen.
func asksSubnet(t changetest.Tester, name string, owner int) log.Op {
	op := changetest.Op(t, fmt.Sprintf(`create network {"name": "%s", "nic_tag": "overlay", "fabric": true, "owner_uuids": ["#%d#"], "subnet": "0.0.0.0/24"}`, name, owner))
	op.Options = []log.Option{log.OptionAllocateSubnet}
	return op
}

// TestSubnetsOfOneChange: which subnets are chosen does not depend on how operations are
// put together in changes: what a draft remembers of a vnet is what it has.
func TestSubnetsOfOneChange(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for round := range 60 {
		together, single := worldtest.New(t, Decide), worldtest.New(t, Decide)
		var ops []log.Op
		there := map[string]bool{} // fabric networks with a UUID of ours
		both := []*worldtest.World{together, single}
		for _, w := range both {
			w.Must(`create nic_tag {"name": "overlay"}`)
			for owner := 1; owner <= 2; owner++ { // the first network decides the vnet
				w.Must(fmt.Sprintf(`create network {"name": "first", "nic_tag": "overlay", "fabric": true, "owner_uuids": ["#%d#"], "vnet_id": %d, "subnet": "10.0.%d.0/24"}`, owner, 10*owner, 3*(round%3)))
			}
		}
		for i := range 40 {
			owner := 1 + rng.IntN(2)
			switch rng.IntN(5) {
			case 0:
				if len(there) > 0 {
					ids := slices.Sorted(func(yield func(string) bool) {
						for id := range there {
							if !yield(id) {
								return
							}
						}
					})
					id := ids[rng.IntN(len(ids))]
					delete(there, id)
					ops = append(ops, changetest.Op(t, "delete network "+id))
					break
				}
				fallthrough
			case 1:
				subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(rng.IntN(16)), byte(rng.IntN(4) * 64)}), 22+rng.IntN(5)).Masked()
				op := changetest.Op(t, fmt.Sprintf(`create network {"uuid": "#%d#", "name": "own%d", "nic_tag": "overlay", "fabric": true, "owner_uuids": ["#%d#"], "subnet": "%s"}`, 40+i, i, owner, subnet))
				if r := single.Try(single.Change(op)); r.Refusal != nil { // its subnet is taken
					continue
				}
				there[changetest.UUID(uint64(40+i)).String()] = true
				ops = append(ops, op)
				continue
			default:
				op := asksSubnet(t, fmt.Sprintf("asked%d", i), owner)
				if rng.IntN(2) == 0 {
					id := changetest.UUID(uint64(40 + i))
					op.Object.(*log.Network).UUID = id
					there[id.String()] = true
				}
				ops = append(ops, op)
			}
			if r := single.Try(single.Change(ops[len(ops)-1])); r.Refusal != nil {
				t.Fatalf("%+v: %v", ops[len(ops)-1], r.Refusal)
			}
		}
		if r := together.Try(together.Change(ops...)); r.Refusal != nil {
			t.Fatalf("all in one change: %v", r.Refusal)
		}
		if got, want := subnetsOf(together.State), subnetsOf(single.State); !slices.Equal(got, want) {
			t.Fatalf("in one change %v, one by one %v", got, want)
		}
	}
}

func subnetsOf(s *projections.State) (all []string) {
	for r := range s.List(log.KindNetwork) {
		n := r.Object.(*log.Network)
		all = append(all, fmt.Sprintf("%d %s %s", n.VNetID, n.Name, n.Subnet))
	}
	slices.Sort(all)
	return all
}

// TestSubnetsAreLookedAtOnce: the work of a change that has subnets chosen grows with its
// operations and with the networks of their vnets, and not with the product of both: the
// attack is a change of 1,024 operations on a vnet with thousands of networks, while which
// no server decides anything else.
func TestSubnetsAreLookedAtOnce(t *testing.T) {
	t.Parallel()
	const networks, asked = 2000, log.MaxOps
	s := stateOfSubnets(t, networks)
	c := &log.Change{ID: log.UUID{1}, By: log.Author{Role: log.RoleTrusted}}
	for i := range asked {
		c.Ops = append(c.Ops, asksSubnet(t, fmt.Sprintf("n%d", i), 1))
	}
	d := newDraft(s, c, &byKind)
	looked := 0
	var first *vnetBlocks
	for d.at = range c.Ops {
		if d.op(&c.Ops[d.at]); d.refused() {
			t.Fatal(d.verdict())
		}
		v := d.vnets[10]
		if d.at == 0 {
			looked, first = v.run, v
			continue
		}
		// What was looked at stays so: the next one begins where this one ended.
		if v != first || v.run < looked {
			t.Fatalf("operation %d begins at network %d of its vnet, the one before ended at %d", d.at, v.run, looked)
		}
		looked = v.run
	}
	if n := len(d.vnets[10].taken); n != networks+asked {
		t.Errorf("%d blocks are taken, want %d", n, networks+asked)
	}
}

// stateOfSubnets is a state with a vnet of so many networks.
func stateOfSubnets(t changetest.Tester, networks int) *projections.State {
	w := worldtest.New(t, Decide)
	w.Must(`create nic_tag {"name": "overlay"}`)
	for i := range networks {
		n := &log.Network{
			UUID: changetest.UUID(uint64(1000 + i)), Name: fmt.Sprintf("there%d", i), NICTag: "overlay", Fabric: true, VNetID: 10,
			OwnerUUIDs: []log.UUID{changetest.UUID(1)}, Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24),
		}
		if err := w.State.Load(projections.Record{Object: n, Revision: 1, Seq: log.Seq(i + 2)}); err != nil {
			t.Fatal(err)
		}
	}
	return w.State
}

// BenchmarkSubnetsOfOneChange: 1,024 subnets chosen on a vnet of 10,000 networks.
func BenchmarkSubnetsOfOneChange(b *testing.B) {
	s := stateOfSubnets(b, 10_000)
	c := &log.Change{ID: log.UUID{1}, By: log.Author{Role: log.RoleTrusted}}
	for i := range log.MaxOps {
		c.Ops = append(c.Ops, asksSubnet(b, fmt.Sprintf("n%d", i), 1))
	}
	for b.Loop() {
		if _, result := Decide(s, c); result.Refusal != nil {
			b.Fatal(result.Refusal)
		}
	}
}
