package filter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

func portNumber(i int) Port {
	return Port{
		Index: uint32(i), Name: fmt.Sprintf("port%d", i), MAC: log.MAC{0x90, 0xb8, 0xd0, byte(i >> 16), byte(i >> 8), byte(i)},
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})},
	}
}

func TestSetAndRead(t *testing.T) {
	n := newNode(t)
	n.want(State{})
	br := n.bridge("br0")
	a := Port{Index: 7, Name: "port0", MAC: macA, Addresses: []netip.Addr{ip4A, ip4A2, ip6A}, AnyIP: true, DHCPServer: true}
	b := Port{Index: 8, Name: "port1", MAC: macB, Addresses: []netip.Addr{ip4B, LinkLocal(macB)}, AnyMAC: true, AnyTraffic: true}
	p4, p6 := Peer{netip.MustParseAddr("192.0.2.1"), 0x123456}, Peer{netip.MustParseAddr("2001:db8::1"), 5}
	u := Underlay{Ports: []uint16{4789, 4790}, Interfaces: []string{"a", "eth0.abcdefghij"}}
	n.apply(Change{SetPort: &a}, Change{SetPort: &b}, Change{AddPeer: &p4}, Change{AddPeer: &p6}, Change{SetUnderlay: &u},
		Change{SetSegment: &Segment{br, "br0"}})
	full := State{Ports: []Port{a, b}, Segments: []Segment{{br, "br0"}}, Peers: []Peer{p6, p4}, Underlay: u}
	n.want(full)
	made := n.k.gen
	n.open() // by another process
	n.want(full)
	if n.k.gen != made {
		t.Error("a table that is sound was made again")
	}
	a.Addresses, a.MAC, a.DHCPServer, a.Name = []netip.Addr{ip4A2}, log.MAC{2}, false, "again"
	n.apply(Change{SetPort: &a}, Change{DelPort: 8}, Change{DelPort: 99}, Change{DelPeer: &p4}, Change{DelPeer: &p4}, Change{SetUnderlay: &Underlay{}}, Change{DelSegment: br}, Change{DelSegment: 99})
	n.want(State{Ports: []Port{a}, Peers: []Peer{p6}})
	if err := n.remove(); err != nil {
		t.Fatal(err)
	}
	n.want(State{})
	n.apply(Change{SetPort: &a})
	n.want(State{Ports: []Port{a}})
}

// TestListedByNft: nft(8) of the machine lists all that the tables hold. A set that it cannot
// list makes it fail for the tables of other programs too.
func TestListedByNft(t *testing.T) {
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("this machine has no nft")
	}
	n := newNode(t)
	port := Port{Index: 7, Name: "port0", MAC: macA, Addresses: []netip.Addr{ip4A, ip6A}, AnyMAC: true, AnyIP: true, DHCPServer: true, AnyTraffic: true}
	p4, p6 := Peer{netip.MustParseAddr("192.0.2.1"), 1001}, Peer{netip.MustParseAddr("2001:db8::1"), 1001}
	q4, q6 := Peer{p4.VTEP.Next(), 1001}, Peer{p6.VTEP.Next(), 1001} // nft sorts them
	n.apply(Change{SetPort: &port}, Change{AddPeer: &p4}, Change{AddPeer: &p6}, Change{AddPeer: &q4}, Change{AddPeer: &q6}, Change{SetSegment: &Segment{n.bridge("br0"), "br0"}},
		Change{SetUnderlay: &Underlay{Ports: []uint16{4789}, Interfaces: []string{"eth0"}}})
	var out bytes.Buffer
	list := exec.Command(nft, "list", "ruleset")
	list.Stdout, list.Stderr = &out, &out
	n.do(list.Start)
	if err := list.Wait(); err != nil {
		t.Fatalf("nft list ruleset: %v\n%s", err, out.Bytes())
	}
	for _, want := range []string{"192.0.2.1 . 0.3.233.0", "2001:db8::1 . 0.3.233.0", ip4A.String(), ip6A.String(), macA.String()} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("nft does not list %s:\n%s", want, out.Bytes())
		}
	}
}

// A change that means nothing, or that the kernel refuses, has its error, and the others are
// made.
func TestRefusedChangesAreNamed(t *testing.T) {
	n := newNode(t)
	good, bad := portNumber(1), portNumber(2)
	bad.Addresses = append(bad.Addresses, netip.IPv6Unspecified())
	long := portNumber(3)
	long.Name = strings.Repeat("x", maxName+1)
	lone := Segment{Index: 9, Name: "br9"}
	errs := n.k.Apply(context.Background(), []Change{
		{SetPort: &bad},
		{SetPort: &good},
		{SetPort: &long},
		{},
		{AddPeer: &Peer{VNI: 1}},
		{AddPeer: &Peer{netip.MustParseAddr("192.0.2.1"), 1 << 24}},
		{SetUnderlay: &Underlay{Interfaces: []string{"a/b"}}},
	})
	for i, err := range errs {
		if (err == nil) != (i == 1) {
			t.Errorf("change %d: %v", i, err)
		}
	}
	n.want(State{Ports: []Port{good}})
	// Kernels from 6.16 on take a chain for a device that does not exist yet.
	errs = n.k.Apply(context.Background(), []Change{{SetSegment: &lone}, {DelPort: 1}})
	if errs != nil && (errs[0] == nil || errs[1] != nil) {
		t.Errorf("a segment without a bridge: %v", errs)
	}
	if s := n.read(); len(s.Ports) != 0 || (len(s.Segments) == 0) != (errs != nil) {
		t.Errorf("after a refusal (%v): %+v", errs, s)
	}
}

// Refusals that the kernel does not give to single messages are found by halving. The limit is
// that of the socket buffer here.
func TestTransactionsAreSplit(t *testing.T) {
	n := newNode(t)
	n.k.c.limit = 6000
	var changes []Change
	var want State
	for i := 1; i <= 100; i++ {
		p := portNumber(i)
		if i == 50 { // more than one transaction can have
			for j := range 100 {
				p.Addresses = append(p.Addresses, netip.AddrFrom4([4]byte{10, 1, 1, byte(j + 1)}))
			}
		} else {
			want.Ports = append(want.Ports, p)
		}
		changes = append(changes, Change{SetPort: &p})
	}
	for i, err := range n.k.Apply(context.Background(), changes) {
		if (err != nil) != (i == 49) || err != nil && !errors.Is(err, unix.EMSGSIZE) {
			t.Errorf("change %d: %v", i, err)
		}
	}
	n.want(want)
}

// Another program that changes nf_tables between our reading and our transaction is seen,
// because the transaction names the generation that it is made for.
func TestConflict(t *testing.T) {
	n := newNode(t)
	p := portNumber(1)
	n.apply(Change{SetPort: &p})
	n.other(delElem(addrElem(1, p.Addresses[0]))) // k does not know of it
	q := portNumber(2)
	q.Index = 1
	n.apply(Change{SetPort: &q})
	n.want(State{Ports: []Port{q}})
	n.other(newTableNamed("else"))
	if _, err := n.k.c.transact(n.k.gen, []message{newTableNamed("late")}); !errors.Is(err, unix.ERESTART) {
		t.Errorf("a transaction for a generation that is past: %v", err)
	}
}

func TestReadCostsADumpOnlyAfterChanges(t *testing.T) {
	n := newNode(t)
	p := portNumber(1)
	n.apply(Change{SetPort: &p})
	n.read()
	before := n.k.c.seq
	n.read()
	if got := n.k.c.seq - before; got != 1 {
		t.Errorf("a second Read asked the kernel %d times, want once", got)
	}
}

// What another program does to our tables is seen by the next Read and healed by the next Apply.
func TestHeal(t *testing.T) {
	p, q := portNumber(1), portNumber(2)
	q.AnyIP = true
	stray := addrElem(1, ip4B)
	chain := chainDef{family: bridge, name: "frame"}
	for name, messages := range map[string][]message{
		"rules flushed":       {nftMessage(unix.NFT_MSG_DELRULE, 0, bridge).text(unix.NFTA_RULE_TABLE, tableName).end()},
		"one chain flushed":   {nftMessage(unix.NFT_MSG_DELRULE, 0, bridge).text(unix.NFTA_RULE_TABLE, tableName).text(unix.NFTA_RULE_CHAIN, "na").end()},
		"a rule added":        {newRule(chain, accept())},
		"a chain added":       {newChain(chainDef{family: bridge, name: "more"})},
		"a set added":         {newSet(setDef{family: bridge, name: "more", keyLen: 4}, 99)},
		"a table deleted":     {delTable(inet)},
		"all tables deleted":  {delTable(bridge), delTable(netdev), delTable(inet), delTable(arp)},
		"a policy changed":    {nftMessage(unix.NFT_MSG_NEWCHAIN, 0, netdev).text(unix.NFTA_CHAIN_TABLE, tableName).text(unix.NFTA_CHAIN_NAME, "SEGMENT").number(unix.NFTA_CHAIN_POLICY, 1).end()},
		"a segment's rule":    {nftMessage(unix.NFT_MSG_DELRULE, 0, netdev).text(unix.NFTA_RULE_TABLE, tableName).end()},
		"an address added":    {newElem(stray)},
		"an address deleted":  {delElem(addrElem(1, p.Addresses[0]))},
		"a flag set":          {newElem(elem{family: bridge, set: setAnyMAC, key: string(indexKey(1))})},
		"a flag without port": {newElem(elem{family: bridge, set: setAnyMAC, key: string(indexKey(77))})},
		"a MAC added":         {newElem(elem{family: bridge, set: setMACs, key: string(append(indexKey(1), 2, 0, 0, 0, 0, 1, 0, 0))})},
		"a peer added":        {newElem(peerElem(Peer{netip.MustParseAddr("192.0.2.66"), 1}))},
		"a peer of VNI none":  {newElem(elem{family: inet, set: setPeers4, key: "\x01\x02\x03\x04\x00\x00\x01\x01"})},
		"index 0":             {newElem(elem{family: bridge, set: setAnyMAC, key: string(indexKey(0))})},
		"other programs":      {newTableNamed("else")},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			br := n.bridge("br0")
			n.apply(Change{SetPort: &p}, Change{SetPort: &q}, Change{SetSegment: &Segment{br, "br0"}})
			want := n.read()
			for i, m := range messages {
				text := strings.Replace(string(m), "SEGMENT\x00", (segmentName(br) + "\x00\x00\x00\x00\x00\x00\x00\x00")[:8], 1)
				messages[i] = message(text)
			}
			if name == "a policy changed" {
				messages = []message{nftMessage(unix.NFT_MSG_NEWCHAIN, 0, netdev).text(unix.NFTA_CHAIN_TABLE, tableName).
					text(unix.NFTA_CHAIN_NAME, segmentName(br)).number(unix.NFTA_CHAIN_POLICY, 1).end()}
			}
			n.other(messages...)
			got := n.read()
			unseen := name == "index 0" || name == "a peer of VNI none" || name == "other programs"
			if same := fmt.Sprint(got) == fmt.Sprint(want); same != unseen {
				t.Fatalf("Read has %+v (%s)", got, n.k.damage)
			}
			// What a manager does: what is not wanted is deleted, what differs is set.
			changes := []Change{{SetPort: &p}, {SetPort: &q}, {SetSegment: &Segment{br, "br0"}}}
			for _, port := range got.Ports {
				if port.Index > 2 {
					changes = append(changes, Change{DelPort: port.Index})
				}
			}
			for _, peer := range got.Peers {
				changes = append(changes, Change{DelPeer: &peer})
			}
			n.apply(changes...)
			n.want(want)
			n.k.known = false
			n.want(want)
			if len(n.k.have.strange) > 0 {
				t.Errorf("strange elements are left: %q", n.k.have.strange)
			}
		})
	}
}

func newTableNamed(name string) message {
	return nftMessage(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, inet).text(unix.NFTA_TABLE_NAME, name).end()
}

// A table of our name that another program made is left alone.
func TestTableOfAnother(t *testing.T) {
	n := newNode(t)
	if err := n.remove(); err != nil {
		t.Fatal(err)
	}
	n.other(newTableNamed(tableName))
	if _, err := n.k.Read(context.Background()); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("Read: %v", err)
	}
	p := portNumber(1)
	if errs := n.k.Apply(context.Background(), []Change{{SetPort: &p}}); len(errs) != 1 || errs[0] == nil {
		t.Errorf("Apply: %v", errs)
	}
}

// A link that is made again has another index: the rules of the first do not hold for it, and
// a segment's chain is made again whether the kernel deleted it with the bridge or not.
func TestSegmentMadeAgain(t *testing.T) {
	n := newNode(t)
	first := n.bridge("br0")
	n.apply(Change{SetSegment: &Segment{first, "br0"}})
	n.do(func() error { return netlab.DeleteLink("br0") })
	second := n.bridge("br0")
	n.apply(Change{DelSegment: first}, Change{SetSegment: &Segment{second, "br0"}})
	n.want(State{Segments: []Segment{{second, "br0"}}})
	n.k.known = false
	n.want(State{Segments: []Segment{{second, "br0"}}})
	n.do(func() error { return netlab.DeleteLink("br0") })
	n.k.known = false
	n.read()
	n.apply(Change{DelSegment: second})
	n.want(State{})
}

// After any changes the State is that of a model.
func TestStateIsThatOfAModel(t *testing.T) {
	n := newNode(t)
	bridges := []Segment{{n.bridge("br0"), "br0"}, {n.bridge("br1"), "br1"}}
	addr := rapid.SampledFrom([]netip.Addr{ip4A, ip4A2, ip4B, ip6A, ip6B, LinkLocal(macA), LinkLocal(macB)})
	rapid.Check(t, func(rt *rapid.T) {
		ports, peers, segments, underlay := map[uint32]Port{}, map[Peer]bool{}, map[uint32]string{}, Underlay{}
		if err := n.remove(); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 6).Draw(rt, "calls") {
			var changes []Change
			for range rapid.IntRange(0, 8).Draw(rt, "changes") {
				switch rapid.IntRange(0, 6).Draw(rt, "kind") {
				case 0, 1:
					addresses := rapid.SliceOfNDistinct(addr, 0, 4, rapid.ID).Draw(rt, "addresses")
					slices.SortFunc(addresses, netip.Addr.Compare)
					if len(addresses) == 0 {
						addresses = nil
					}
					p := Port{
						Index: rapid.Uint32Range(1, 4).Draw(rt, "index"), Name: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "name"),
						MAC: rapid.SampledFrom([]log.MAC{macA, macB}).Draw(rt, "mac"), Addresses: addresses,
						AnyMAC: rapid.Bool().Draw(rt, "m"), AnyIP: rapid.Bool().Draw(rt, "i"),
						DHCPServer: rapid.Bool().Draw(rt, "d"), AnyTraffic: rapid.Bool().Draw(rt, "t"),
					}
					ports[p.Index] = p
					changes = append(changes, Change{SetPort: &p})
				case 2:
					i := rapid.Uint32Range(1, 4).Draw(rt, "index")
					delete(ports, i)
					changes = append(changes, Change{DelPort: i})
				case 3:
					p := Peer{rapid.SampledFrom([]netip.Addr{ip4A, ip6A}).Draw(rt, "vtep"), rapid.Uint32Range(0, 2).Draw(rt, "vni")}
					if rapid.Bool().Draw(rt, "add") {
						peers[p] = true
						changes = append(changes, Change{AddPeer: &p})
					} else {
						delete(peers, p)
						changes = append(changes, Change{DelPeer: &p})
					}
				case 4:
					s := rapid.SampledFrom(bridges).Draw(rt, "segment")
					if rapid.Bool().Draw(rt, "add") {
						segments[s.Index] = s.Name
						changes = append(changes, Change{SetSegment: &s})
					} else {
						delete(segments, s.Index)
						changes = append(changes, Change{DelSegment: s.Index})
					}
				case 5:
					underlay = Underlay{}
					if rapid.Bool().Draw(rt, "set") {
						underlay = Underlay{Ports: []uint16{4789}, Interfaces: rapid.SampledFrom([][]string{nil, {"a"}, {"a", "b"}}).Draw(rt, "names")}
					}
					u := underlay
					changes = append(changes, Change{SetUnderlay: &u})
				case 6:
					n.k.known = false // another program changed something
				}
			}
			n.apply(changes...)
			model := contents{ports: map[uint32][]elem{}, segments: segments, peers: peers, underlay: underlay.elems()}
			want := model.state()
			for _, i := range []uint32{1, 2, 3, 4} {
				if p, ok := ports[i]; ok {
					want.Ports = append(want.Ports, p)
				}
			}
			n.want(want)
		}
		n.k.known = false
		n.read()
		if n.k.damage != "" {
			t.Fatal(n.k.damage)
		}
	})
}
