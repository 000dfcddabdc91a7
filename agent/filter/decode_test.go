package filter

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
)

// Whatever bytes a dump has, reading ends, and elements have the length of their set's keys.
func FuzzDecode(f *testing.F) {
	for _, e := range portNumber(1).elems() {
		f.Add([]byte(newElem(e))[nlmsg.HeaderSize+nfgenSize:])
	}
	f.Add(expressions(bridge, withinRate()))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, s := range sets {
			c := newContents()
			decodeElements(s, b, func(e readElem) {
				if uint32(len(e.key)) != s.keyLen {
					t.Fatalf("a key of %d bytes in set %s", len(e.key), s.name)
				}
				if !s.dynamic {
					c.add(e.elem)
				}
			})
			for _, elems := range c.ports {
				slices.SortFunc(elems, compareElems)
			}
			c.state()
		}
		if !covers(b, b) {
			t.Error("bytes are not equal to themselves")
		}
		covers(expressions(bridge, withinRate()), b)
		decodeCounter(b)
	})
}

// Rules that differ in one value, in their order or by what the kernel would add are not ours.
func TestCovers(t *testing.T) {
	ours := expressions(bridge, all(port(setMACs), accept()))
	for name, other := range map[string][]byte{
		"another set":  expressions(bridge, all(port(setAnyIP), accept())),
		"inverted":     expressions(bridge, all(notPort(setMACs), accept())),
		"verdict":      expressions(bridge, all(port(setMACs), drop())),
		"one less":     expressions(bridge, port(setMACs)),
		"one more":     expressions(bridge, all(port(setMACs), meta(3), accept())),
		"nothing":      nil,
		"not a list":   {1, 2, 3},
		"another rate": expressions(bridge, all(withinRate(), accept())),
	} {
		if covers(ours, other) || name != "nothing" && covers(other, ours) {
			t.Errorf("%s: taken for ours", name)
		}
	}
	if !covers(ours, slices.Clone(ours)) {
		t.Error("the same bytes are not ours")
	}
}

func TestLimits(t *testing.T) {
	n := newNode(t)
	p := portNumber(1)
	p.Addresses = nil
	for i := range maxAddresses {
		p.Addresses = append(p.Addresses, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))
	}
	p.Name = "abcdefghijklmno" // maxName
	n.apply(Change{SetPort: &p})
	n.want(State{Ports: []Port{p}})
	p.Addresses = append(p.Addresses, ip4A)
	if errs := n.k.Apply(context.Background(), []Change{{SetPort: &p}}); errs == nil {
		t.Errorf("a port with %d addresses was taken", len(p.Addresses))
	}
}

// What cannot be a transaction is an error, and not a wait.
func TestTooLargeForTheSocket(t *testing.T) {
	n := newNode(t)
	n.k.c.limit = 60
	_, err := n.k.c.transact(n.k.gen, []message{newTableNamed("a"), newTableNamed("b")})
	if !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("got %v", err)
	}
	if gen, err := n.k.c.generation(); err != nil || gen != n.k.gen {
		t.Errorf("generation %d, was %d: %v", gen, n.k.gen, err)
	}
}
