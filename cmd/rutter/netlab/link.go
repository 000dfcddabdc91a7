package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The functions of this file work in the namespace of the calling thread: call
// them inside Namespace.Do.

// rtnetlink sends one message and waits for its acknowledgement.
func rtnetlink(what string, kind netlink.HeaderType, flags netlink.HeaderFlags, header []byte, attributes func(*netlink.AttributeEncoder)) error {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer conn.Close()
	ae := netlink.NewAttributeEncoder()
	if attributes != nil {
		attributes(ae)
	}
	data, err := ae.Encode()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	_, err = conn.Execute(netlink.Message{
		Header: netlink.Header{Type: kind, Flags: netlink.Request | netlink.Acknowledge | flags},
		Data:   append(header, data...),
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// ifinfo is struct ifinfomsg (linux/rtnetlink.h), 16 bytes.
func ifinfo(index int, flags, change uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	nativeEndian.PutUint32(b[4:], uint32(index))
	nativeEndian.PutUint32(b[8:], flags)
	nativeEndian.PutUint32(b[12:], change)
	return b
}

func indexOf(name string) (int, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("link %s: %w", name, err)
	}
	return ifi.Index, nil
}

// AddBridge makes a bridge and sets it up.
func AddBridge(name string) error {
	err := rtnetlink("bridge "+name, unix.RTM_NEWLINK, netlink.Create|netlink.Excl, ifinfo(0, unix.IFF_UP, unix.IFF_UP), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, name)
		ae.Nested(unix.IFLA_LINKINFO, func(nae *netlink.AttributeEncoder) error {
			nae.String(unix.IFLA_INFO_KIND, "bridge")
			return nil
		})
	})
	return err
}

// vethInfoPeer is VETH_INFO_PEER (linux/veth.h).
const vethInfoPeer = 1

// AddVeth makes a pair of virtual Ethernet links: name here and peer in
// namespace to, both with the MTU in bytes, both down.
func AddVeth(name, peer string, to Namespace, mtu uint32) error {
	fd, err := unix.Open(to.Path(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("veth %s: namespace %s: %w", name, to.Name, err)
	}
	defer unix.Close(fd)
	return rtnetlink("veth "+name, unix.RTM_NEWLINK, netlink.Create|netlink.Excl, ifinfo(0, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, name)
		ae.Uint32(unix.IFLA_MTU, mtu)
		ae.Nested(unix.IFLA_LINKINFO, func(nae *netlink.AttributeEncoder) error {
			nae.String(unix.IFLA_INFO_KIND, "veth")
			nae.Nested(unix.IFLA_INFO_DATA, func(data *netlink.AttributeEncoder) error {
				inner := netlink.NewAttributeEncoder()
				inner.String(unix.IFLA_IFNAME, peer)
				inner.Uint32(unix.IFLA_MTU, mtu)
				inner.Uint32(unix.IFLA_NET_NS_FD, uint32(fd))
				b, err := inner.Encode()
				data.Bytes(vethInfoPeer, append(ifinfo(0, 0, 0), b...))
				return err
			})
			return nil
		})
	})
}

// SetMaster makes a link a port of a bridge.
func SetMaster(name, bridge string) error {
	index, err := indexOf(name)
	if err != nil {
		return err
	}
	master, err := indexOf(bridge)
	if err != nil {
		return err
	}
	return rtnetlink("master of "+name, unix.RTM_NEWLINK, 0, ifinfo(index, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.IFLA_MASTER, uint32(master))
	})
}

// SetUp sets a link up or down.
func SetUp(name string, up bool) error {
	index, err := indexOf(name)
	if err != nil {
		return err
	}
	var flags uint32
	if up {
		flags = unix.IFF_UP
	}
	return rtnetlink(fmt.Sprintf("set %s up=%t", name, up), unix.RTM_NEWLINK, 0, ifinfo(index, flags, unix.IFF_UP), nil)
}

// SetMTU gives a link another MTU, in bytes.
func SetMTU(name string, mtu uint32) error {
	index, err := indexOf(name)
	if err != nil {
		return err
	}
	return rtnetlink(fmt.Sprintf("set %s mtu %d", name, mtu), unix.RTM_NEWLINK, 0, ifinfo(index, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.IFLA_MTU, mtu)
	})
}

// SetMAC gives a link an Ethernet address.
func SetMAC(name string, mac [6]byte) error {
	index, err := indexOf(name)
	if err != nil {
		return err
	}
	return rtnetlink("address of "+name, unix.RTM_NEWLINK, 0, ifinfo(index, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.IFLA_ADDRESS, mac[:])
	})
}

// DeleteLink removes a link.
func DeleteLink(name string) error {
	index, err := indexOf(name)
	if err != nil {
		return err
	}
	return rtnetlink("delete "+name, unix.RTM_DELLINK, 0, ifinfo(index, 0, 0), nil)
}

// AddAddress gives a link an address. IPv6 ones are usable at once: no
// duplicate address detection.
func AddAddress(name string, address netip.Prefix) error {
	index, err := indexOf(name)
	if err != nil {
		return err
	}
	family := byte(unix.AF_INET)
	if address.Addr().Is6() {
		family = unix.AF_INET6
	}
	header := make([]byte, unix.SizeofIfAddrmsg)
	header[0], header[1], header[2] = family, byte(address.Bits()), unix.IFA_F_NODAD
	nativeEndian.PutUint32(header[4:], uint32(index))
	return rtnetlink("address "+address.String(), unix.RTM_NEWADDR, netlink.Create|netlink.Replace, header, func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.IFA_LOCAL, address.Addr().AsSlice())
		ae.Bytes(unix.IFA_ADDRESS, address.Addr().AsSlice())
	})
}

// DeleteAddress takes an address from a link.
func DeleteAddress(name string, address netip.Prefix) error {
	index, err := indexOf(name)
	if err != nil {
		return err
	}
	header := make([]byte, unix.SizeofIfAddrmsg)
	header[0], header[1] = unix.AF_INET, byte(address.Bits())
	if address.Addr().Is6() {
		header[0] = unix.AF_INET6
	}
	nativeEndian.PutUint32(header[4:], uint32(index))
	return rtnetlink("address "+address.String(), unix.RTM_DELADDR, 0, header, func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.IFA_LOCAL, address.Addr().AsSlice())
	})
}

// HasVLAN reports whether the kernel has 802.1Q, by making a VLAN link on
// parent and deleting it.
func HasVLAN(parent string) (bool, error) {
	index, err := indexOf(parent)
	if err != nil {
		return false, err
	}
	const name = "vlanprobe"
	err = rtnetlink("vlan "+name, unix.RTM_NEWLINK, netlink.Create|netlink.Excl, ifinfo(0, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, name)
		ae.Uint32(unix.IFLA_LINK, uint32(index))
		ae.Nested(unix.IFLA_LINKINFO, func(nae *netlink.AttributeEncoder) error {
			nae.String(unix.IFLA_INFO_KIND, "vlan")
			nae.Nested(unix.IFLA_INFO_DATA, func(data *netlink.AttributeEncoder) error {
				data.Uint16(unix.IFLA_VLAN_ID, 2)
				return nil
			})
			return nil
		})
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, DeleteLink(name)
}
