package filter

import (
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tableName is the name of our table in each family.
const tableName = "rutter"

// marker is the comment of our tables. A table of the same name without it belongs to another
// program, and is never touched. The number says what the rest of the table means: its
// sets' keys, and the comments of their elements.
const marker = "rutter port security 1"

// The limits of one port's requests to the answerer of the node: broadcast or unicast ARP
// requests, ND and router solicitations, DHCP and DHCPv6 requests, all together. A guest
// that boots sends some ten, and one that speaks to 3,000 others renews 100 neighbours a
// second (each is asked again after 15 to 45 s).
const (
	requestRate  = 100 // a second
	requestBurst = 200
	// requestForget is how long after its last request a port's account is kept. A full
	// account needs requestBurst/requestRate = 2 s to be new.
	requestForget = time.Minute
)

// maxCounted is how many pairs of a port and a reason are counted, and how many ports have an
// account of requests. What is more is dropped uncounted; requests of a port that gets no
// account are dropped.
const maxCounted = 65536

// The hooks and priorities (linux/netfilter_bridge.h, netfilter.h, netfilter_ipv4.h).
const (
	hookBridgePrerouting = 0
	hookBridgeInput      = 1
	hookInetPrerouting   = 0
	hookInetInput        = 1
	hookARPInput         = 0
	hookNetdevIngress    = 0
	priorityBridge       = -300 // NF_BR_PRI_NAT_DST_BRIDGED: before the rules of others
	priorityRaw          = -300 // NF_IP_PRI_RAW
	priorityNetdev       = 0
)

// The sets. A key begins with the ifindex, in the machine's byte order, where it says iif.
const (
	setPorts    = "ports"      // iif: the host ends that the rules are about
	setMACs     = "macs"       // iif . MAC
	setV4       = "v4"         // iif . IPv4 address
	setWhole4   = "whole4"     // iif . MAC and the ethertype of IPv4 . IPv4 address
	setV6       = "v6"         // iif . IPv6 address, the link-local address among them
	setAnyMAC   = "anymac"     // iif
	setAnyIP    = "anyip"      // iif
	setDHCP     = "dhcpserver" // iif
	setAnyOther = "anytraffic" // iif
	setDrops    = "drops"      // iif . reason, with a counter
	setRequests = "requests"   // iif, with a limit

	// In the families inet and arp, for what comes to the node's own stack by a host end.
	setClosed      = "closed"      // iif: as setPorts
	setClosedDrops = "closeddrops" // iif . reason, with a counter

	setVXLANPorts = "vxlanports" // UDP port
	setInterfaces = "interfaces" // name of an interface, 16 bytes
	setPeers4     = "peers4"     // IPv4 address . VNI
	setPeers6     = "peers6"     // IPv6 address . VNI
)

// setDef is one set of our tables.
type setDef struct {
	family  byte
	name    string
	keyLen  uint32        // bytes; each part of a key begins at a multiple of 4
	keyType uint32        // of nft(8), for its listings
	dynamic bool          // rules add elements
	size    uint32        // how many elements it may have; 0: any number
	counter bool          // elements that rules add are read by Counters
	timeout time.Duration // of elements that rules add
}

// The types of nft(8) (nftables/datatype.h). A concatenation has 6 bits for each part. nft ends
// itself at a set whose key has a part without a length of its own, as integer has none, and
// then lists no tables at all: a VNI is listed as 0.3.233.0 (its three bytes and a 0).
const (
	typeIPv4    = 7
	typeIPv6    = 8
	typeMAC     = 9
	typeService = 13
	typeMark    = 19
	typeIfindex = 20
	typeIfname  = 41
)

var sets = []setDef{
	{family: bridge, name: setPorts, keyLen: 4, keyType: typeIfindex},
	{family: bridge, name: setMACs, keyLen: 12, keyType: typeIfindex<<6 | typeMAC},
	{family: bridge, name: setV4, keyLen: 8, keyType: typeIfindex<<6 | typeIPv4},
	{family: bridge, name: setWhole4, keyLen: 16, keyType: typeIfindex<<12 | typeMAC<<6 | typeIPv4},
	{family: bridge, name: setV6, keyLen: 20, keyType: typeIfindex<<6 | typeIPv6},
	{family: bridge, name: setAnyMAC, keyLen: 4, keyType: typeIfindex},
	{family: bridge, name: setAnyIP, keyLen: 4, keyType: typeIfindex},
	{family: bridge, name: setDHCP, keyLen: 4, keyType: typeIfindex},
	{family: bridge, name: setAnyOther, keyLen: 4, keyType: typeIfindex},
	{family: bridge, name: setDrops, keyLen: 8, keyType: typeIfindex<<6 | typeMark, dynamic: true, size: maxCounted, counter: true},
	{family: bridge, name: setRequests, keyLen: 4, keyType: typeIfindex, dynamic: true, size: maxCounted, timeout: requestForget},
	{family: netdev, name: setDrops, keyLen: 4, keyType: typeIfindex, dynamic: true, size: maxCounted, counter: true},
	{family: inet, name: setClosed, keyLen: 4, keyType: typeIfindex},
	{family: inet, name: setClosedDrops, keyLen: 8, keyType: typeIfindex<<6 | typeMark, dynamic: true, size: maxCounted, counter: true},
	{family: arp, name: setClosed, keyLen: 4, keyType: typeIfindex},
	{family: arp, name: setClosedDrops, keyLen: 8, keyType: typeIfindex<<6 | typeMark, dynamic: true, size: maxCounted, counter: true},
	{family: inet, name: setVXLANPorts, keyLen: 2, keyType: typeService},
	{family: inet, name: setInterfaces, keyLen: unix.IFNAMSIZ, keyType: typeIfname},
	{family: inet, name: setPeers4, keyLen: 8, keyType: typeIPv4<<6 | typeIPv4},
	{family: inet, name: setPeers6, keyLen: 20, keyType: typeIPv6<<6 | typeIPv4},
	{family: inet, name: setDrops, keyLen: 4, keyType: typeMark, dynamic: true, size: maxCounted, counter: true},
}

// Families (linux/netfilter.h).
const (
	inet   = unix.NFPROTO_INET
	arp    = unix.NFPROTO_ARP
	netdev = unix.NFPROTO_NETDEV
	bridge = unix.NFPROTO_BRIDGE
)

// families are where we have a table.
var families = []byte{bridge, netdev, inet, arp}

var familyNames = map[byte]string{bridge: "bridge", netdev: "netdev", inet: "inet", arp: "arp"}

// chainDef is one chain of our tables. A base chain has a kind of hook.
type chainDef struct {
	family   byte
	name     string
	base     bool
	hook     uint32
	priority int32
	drops    bool   // the policy; else packets that reach the end are accepted
	device   string // of a chain in family netdev
	rules    []rule
}

// rule is what one rule does, in order, until an expression does not match.
type rule []expr.Any

// The registers. A key of two parts needs them side by side: first has room for 4 bytes
// before second, which has room for the rest.
const (
	regFirst  = 1  // NFT_REG_1, which begins where NFT_REG32_00 does
	regSecond = 9  // NFT_REG32_01
	regFourth = 11 // NFT_REG32_03: after 4 bytes in the first and 8 in the second
	regAfter6 = 2  // NFT_REG_2: after the 16 bytes of an IPv6 address in the first
)

func all(parts ...rule) rule {
	var r rule
	for _, p := range parts {
		r = append(r, p...)
	}
	return r
}

func load(base expr.PayloadBase, offset, length, register uint32) rule {
	return rule{&expr.Payload{DestRegister: register, Base: base, Offset: offset, Len: length}}
}

func link(offset, length uint32, want ...byte) rule {
	return field(expr.PayloadBaseLLHeader, offset, length, want)
}

func network(offset, length uint32, want ...byte) rule {
	return field(expr.PayloadBaseNetworkHeader, offset, length, want)
}

func transport(offset, length uint32, want ...byte) rule {
	return field(expr.PayloadBaseTransportHeader, offset, length, want)
}

// field matches if the packet has the field and the field has the value; without a value if
// the packet has the field.
func field(base expr.PayloadBase, offset, length uint32, want []byte) rule {
	r := load(base, offset, length, regFirst)
	if want != nil {
		r = append(r, &expr.Cmp{Op: expr.CmpOpEq, Register: regFirst, Data: want})
	}
	return r
}

// masked matches if the field has the value after the mask.
func masked(base expr.PayloadBase, offset uint32, op expr.CmpOp, mask, want []byte) rule {
	n := uint32(len(mask))
	return append(load(base, offset, n, regFirst),
		&expr.Bitwise{SourceRegister: regFirst, DestRegister: regFirst, Len: n, Mask: mask, Xor: make([]byte, n)},
		&expr.Cmp{Op: op, Register: regFirst, Data: want})
}

func meta(key expr.MetaKey, want ...byte) rule {
	r := rule{&expr.Meta{Key: key, Register: regFirst}}
	if want != nil {
		r = append(r, &expr.Cmp{Op: expr.CmpOpEq, Register: regFirst, Data: want})
	}
	return r
}

func protocol(want byte) rule { return meta(expr.MetaKeyL4PROTO, want) }

// noProtocol matches if the packet has a known protocol, and another one.
func noProtocol(other byte) rule {
	return append(meta(expr.MetaKeyL4PROTO), &expr.Cmp{Op: expr.CmpOpNeq, Register: regFirst, Data: []byte{other}})
}

// in matches if the key in the registers from the first on is in the set.
func in(set string) rule {
	return rule{&expr.Lookup{SourceRegister: regFirst, SetName: set}}
}

// port matches if the set has the port that the frame came by.
func port(set string) rule { return append(meta(expr.MetaKeyIIF), in(set)...) }

func notPort(set string) rule {
	return append(meta(expr.MetaKeyIIF), &expr.Lookup{SourceRegister: regFirst, SetName: set, Invert: true})
}

// owns matches if the set has the port together with the field.
func owns(set string, base expr.PayloadBase, offset, length uint32) rule {
	return all(meta(expr.MetaKeyIIF), load(base, offset, length, regSecond), in(set))
}

func jump(chain string) rule { return rule{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}} }

func accept() rule { return rule{&expr.Verdict{Kind: expr.VerdictAccept}} }

func drop() rule { return rule{&expr.Verdict{Kind: expr.VerdictDrop}} }

// count adds one to the counter of the key in the registers. If the set is full the rule ends
// there, so the verdict is a rule of its own.
func count(set string) rule {
	return rule{&expr.Dynset{
		SrcRegKey: regFirst, SetName: set, Operation: unix.NFT_DYNSET_OP_ADD,
		Exprs: []expr.Any{&expr.Counter{}},
	}}
}

// withinRate matches if the port makes no more requests than it may. If the set is full it does
// not match, so a port without an account may make none.
func withinRate() rule {
	return append(meta(expr.MetaKeyIIF), &expr.Dynset{
		SrcRegKey: regFirst, SetName: setRequests, Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: requestForget,
		Exprs: []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: requestRate, Unit: expr.LimitTimeSecond, Burst: requestBurst}},
	})
}

func dropChain(r Reason) string { return "drop-" + string(r) }

// dropChains has one chain for each reason, which counts and drops.
func dropChains(family byte, set string, key func(number []byte) rule, reasons ...Reason) []chainDef {
	var out []chainDef
	for _, r := range reasons {
		out = append(out, chainDef{family: family, name: dropChain(r), rules: []rule{
			append(key(reasonKey(r)), count(set)...),
			drop(),
		}})
	}
	return out
}
