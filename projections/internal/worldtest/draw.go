package worldtest

import (
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/changetest"
)

// Even draws a number from 0 to n-1, each about as often; rapid itself prefers
// small ones, which would all be one kind of operation.
func Even(t *rapid.T, n int, what string) int {
	return int(rapid.Uint32().Draw(t, what)*2654435761>>16) % n
}

func DrawUUID(t *rapid.T, from, n int, what string) log.UUID {
	return changetest.UUID(uint64(from + Even(t, n, what)))
}

var Subnets = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/29"), netip.MustParsePrefix("10.0.0.8/29"),
	netip.MustParsePrefix("10.0.0.0/28"), netip.MustParsePrefix("fd00::/126"),
}

// DrawOp draws an operation on one of few objects, so that they meet.
func DrawOp(t *rapid.T) log.Op {
	pick := Even(t, 100, "op")
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
		return log.Op{Action: log.Update, Kind: log.KindNetwork, ID: DrawUUID(t, 30, 4, "net").String(), Set: []string{"gateway"}, Object: n}
	case pick < 19:
		return log.Op{Action: log.Create, Kind: log.KindServer, Set: []string{"uuid"}, Object: &log.Server{UUID: DrawUUID(t, 11, 3, "cn")}}
	case pick < 24:
		vm := &log.VM{UUID: DrawUUID(t, 21, 3, "vm"), OwnerUUID: changetest.UUID(1), ServerUUID: DrawUUID(t, 11, 3, "cn"), State: "running"}
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
	uuid := DrawUUID(t, 30, 4, "net")
	n := &log.Network{
		UUID: uuid, Name: uuid.String(), NICTag: rapid.SampledFrom([]string{"one", "two"}).Draw(t, "tag"),
		Subnet: rapid.SampledFrom(Subnets).Draw(t, "subnet"),
	}
	if Even(t, 4, "fabric") > 0 {
		n.Fabric, n.VNetID, n.OwnerUUIDs = true, uint32(10+10*Even(t, 2, "vnet")), []log.UUID{DrawUUID(t, 1, 2, "owner")}
	}
	return log.Op{Action: log.Create, Kind: log.KindNetwork, Set: []string{"name"}, Object: n}
}

func drawIP(t *rapid.T) netip.Addr {
	if Even(t, 3, "no ip") > 0 {
		return netip.Addr{}
	}
	return rapid.SampledFrom(append(Addresses(Subnets[2]), Addresses(Subnets[3])...)).Draw(t, "ip")
}

func drawMAC(t *rapid.T) log.MAC {
	return log.MAC{0, 0, 0, 0, 0, byte(Even(t, 10, "mac"))} // 0: to be drawn
}

func drawNIC(t *rapid.T) log.Op {
	n := &log.NIC{MAC: drawMAC(t), OwnerUUID: DrawUUID(t, 1, 2, "owner"), IP: drawIP(t), Primary: Even(t, 2, "primary") > 0}
	if Even(t, 7, "server") == 3 {
		n.BelongsToType, n.BelongsToUUID, n.Underlay = "server", DrawUUID(t, 11, 3, "cn"), Even(t, 2, "underlay") > 0
	} else {
		n.BelongsToType, n.BelongsToUUID = "zone", DrawUUID(t, 21, 3, "vm")
		if Even(t, 2, "has cn") > 0 {
			n.CNUUID = DrawUUID(t, 11, 3, "cn")
		}
	}
	if Even(t, 6, "on a network") > 0 {
		n.NetworkUUID = DrawUUID(t, 30, 4, "net")
	}
	return log.Op{Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_uuid"}, Object: n}
}

func drawNICUpdate(t *rapid.T) log.Op {
	n := &log.NIC{
		IP: drawIP(t), CNUUID: DrawUUID(t, 11, 3, "cn"), Primary: Even(t, 2, "primary") > 0,
		State: rapid.SampledFrom([]string{"provisioning", "running"}).Draw(t, "state"), Underlay: Even(t, 2, "underlay") > 0,
	}
	if Even(t, 6, "on a network") > 0 {
		n.NetworkUUID = DrawUUID(t, 30, 4, "net")
	}
	fields := []string{"cn_uuid", "ip", "network_uuid", "primary", "state", "underlay"}
	set := rapid.SliceOfNDistinct(rapid.SampledFrom(fields), 1, 1+Even(t, 3, "fields"), rapid.ID).Draw(t, "set")
	slices.Sort(set)
	mac := log.MAC{5: byte(1 + Even(t, 9, "mac"))}
	return log.Op{Action: log.Update, Kind: log.KindNIC, ID: mac.String(), Set: set, Object: n, IfMatch: drawMatch(t)}
}

// drawMatch draws no revision mostly, else one that may be right.
func drawMatch(t *rapid.T) log.Revision {
	return log.Revision(max(0, Even(t, 16, "if-match")-12))
}

func drawDelete(t *rapid.T) log.Op {
	mac := log.MAC{5: byte(1 + Even(t, 9, "mac"))}
	op := log.Op{Action: log.Delete, Kind: log.KindNIC, ID: mac.String(), IfMatch: drawMatch(t)}
	switch Even(t, 15, "deleted") {
	case 0:
		op.Kind, op.ID = log.KindNICTag, "one"
	case 1, 2:
		op.Kind, op.ID = log.KindNetwork, DrawUUID(t, 30, 4, "net").String()
	case 3:
		op.Kind, op.ID = log.KindServer, DrawUUID(t, 11, 3, "cn").String()
	case 4:
		op.Kind, op.ID = log.KindVM, DrawUUID(t, 21, 3, "vm").String()
	}
	return op
}

// Addresses lists every address of a small subnet.
func Addresses(p netip.Prefix) (all []netip.Addr) {
	for ip := p.Addr(); p.Contains(ip); ip = ip.Next() {
		all = append(all, ip)
	}
	return all
}
