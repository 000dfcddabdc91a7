package plan

import (
	"fmt"
	"hash/fnv"
	"strings"

	"rutter/log"
)

// A link of ours bears a mark, because names are no evidence: a guest renames its link,
// and another program may take our names. The mark has two parts.
//
//	alias  "rutter CLUSTER OBJECT": which cluster's log wants the link, and as what
//	group  GroupOf(CLUSTER): the kernel takes it in the message that makes the link, and
//	       ignores the alias there; so a link is never without any mark
//
// An alias and no alternative name (IFLA_ALT_IFNAME), because alternative names are names:
// they must be unique in a namespace, so that a foreign link could keep ours away, and
// each is found by lookups of links.
const markWord = "rutter"

// FirstIndex is the lowest ifindex that we choose for a link. We choose it so that a link
// and what is on it can be sent in one batch. The kernel does not choose indexes this
// high, and all versions chose them from here: a link with a lower one is not ours, unless
// it bears our mark.
const FirstIndex = 1 << 20

const (
	// groupBase and groupBits bound the link groups of clusters: numbers that ip(8)
	// accepts, and that are never used by chance.
	groupBase = 1 << 30
	groupBits = groupBase - 1
	// TrashGroup is the link group in which links are deleted together; one at a time
	// costs 20 ms each (spec/kernel.md section 4).
	TrashGroup = 0x52757474
)

// GroupOf returns the link group of a cluster's links.
func GroupOf(cluster log.UUID) uint32 {
	hash := fnv.New32a()
	hash.Write(cluster[:])
	group := uint32(groupBase | hash.Sum32()&groupBits)
	if group == TrashGroup {
		group++
	}
	return group
}

// Mark is what the alias of a link of ours says.
type Mark struct {
	Cluster log.UUID
	Object  string
}

// String returns the alias.
func (m Mark) String() string { return markWord + " " + m.Cluster.String() + " " + m.Object }

// ParseMark reads an alias. It reports false if that is no mark.
func ParseMark(alias string) (m Mark, ok bool) {
	rest, ok := strings.CutPrefix(alias, markWord+" ")
	if !ok {
		return m, false
	}
	cluster, object, ok := strings.Cut(rest, " ")
	if !ok {
		return m, false
	}
	id, err := log.ParseUUID(cluster)
	return Mark{Cluster: id, Object: object}, err == nil
}

const (
	nicObject  = "nic "
	portObject = "port "
)

// objectOf is the Mark.Object of a link: what cannot be changed of
// it, or the MAC of its NIC. vnet is that of the device below a VLAN link.
func objectOf(l *Link, vnet uint32, nic log.MAC) string {
	switch l.Kind {
	case KindVXLAN:
		return fmt.Sprintf("vxlan %d", l.VNI)
	case KindVLAN:
		return fmt.Sprintf("vlan %d %d", vnet, l.VLAN)
	case KindBridge:
		vnet, vlan, _ := segmentOfName(l.Name)
		return fmt.Sprintf("bridge %d %d", vnet, vlan)
	}
	if l.Host {
		return portObject + nic.String()
	}
	return nicObject + nic.String()
}

// nic returns the MAC in the mark of a fabric link, the zero MAC if there is none.
func (m Mark) nic() log.MAC { return m.mac(nicObject) }

// port returns the MAC in the mark of the node's end of a veth pair, the zero MAC if there
// is none.
func (m Mark) port() log.MAC { return m.mac(portObject) }

// bridge returns the name of the bridge in a mark, "" if it is of none.
func (m Mark) bridge() string {
	var vnet uint32
	var vlan uint16
	if n, err := fmt.Sscanf(m.Object, "bridge %d %d", &vnet, &vlan); n != 2 || err != nil {
		return ""
	}
	return BridgeName(vnet, vlan)
}

func (m Mark) mac(prefix string) (mac log.MAC) {
	if text, ok := strings.CutPrefix(m.Object, prefix); ok {
		if parsed, err := log.ParseMAC(text); err == nil {
			return parsed
		}
	}
	return mac
}

// Mark returns the alias and the group of a link that we make; nic is the MAC of its NIC.
func (n Numbers) Mark(l *Link, nic log.MAC) (alias string, group uint32) {
	vnet, _ := VNetOfName(l.Parent)
	return Mark{Cluster: n.Cluster(), Object: objectOf(l, vnet, nic)}.String(), GroupOf(n.Cluster())
}

// MayBeOurs reports whether a link could be one of ours, of any cluster: by its name, its
// mark, or its ifindex. A dump reads these.
func MayBeOurs(l *Link) bool {
	if KindOfName(l.Name) != "" {
		return true
	}
	switch l.Kind {
	case KindVXLAN, KindVLAN, KindMacvlan, KindBridge, KindVeth, KindTap:
	default:
		return false
	}
	return l.Index >= FirstIndex || l.Group >= groupBase && l.Group <= groupBase|groupBits || strings.HasPrefix(l.Alias, markWord+" ")
}

// Stranger says why a link is not ours, and what to do if it is in the way.
func (l *Link) Stranger() string {
	text := fmt.Sprintf("%s is there, and not ours (kind %q", l.Place(), l.Kind)
	if m, ok := ParseMark(l.Alias); ok {
		return text + fmt.Sprintf(", marked for %s by cluster %s): if no agent of that cluster runs here, remove it (all of them: ip link del group %d), else let the two clusters use different vnets", m.Object, m.Cluster, GroupOf(m.Cluster))
	}
	return text + ", without our mark): rename or remove it"
}

// MarkedNIC returns the MAC of the NIC for which a link is marked, the zero MAC if it is
// marked for none.
func (l *Link) MarkedNIC() (mac log.MAC) {
	if m, ok := ParseMark(l.Alias); ok {
		return m.nic()
	}
	return mac
}

// MarkedPort is MarkedNIC for the node's end of a veth pair.
func (l *Link) MarkedPort() (mac log.MAC) {
	if m, ok := ParseMark(l.Alias); ok {
		return m.port()
	}
	return mac
}
