package cnicmd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"rutter/agent/link/plan"
)

// device is an interface as the kernel has it.
type device struct {
	name      string
	index     int
	mac       string // as aa:bb:...
	mtu       int
	up        bool
	veth      bool
	marked    bool           // its alias is of the form of an agent's
	peer      int            // the ifindex of a veth's other end, in that end's namespace
	addresses []netip.Prefix // without IPv6 link-local ones
	routes    []netip.Prefix // of the main table, by this interface; the default one is 0.0.0.0/0 or ::/0
}

// errNoDevice: the namespace has no such interface.
var errNoDevice = errors.New("there is no interface of that name")

// readDevice reads the interface of a name in the network namespace at path, or, if path is
// empty, in the one of this process. Errors: errNoDevice, and those of netlink.
func readDevice(path, name string) (d *device, err error) {
	read := func() error {
		d, err = readHere(name)
		return err
	}
	if path == "" {
		return d, read()
	}
	if err := inNamespace(path, read); err != nil {
		return nil, err
	}
	return d, nil
}

// readHere reads the interface in the namespace of this thread.
func readHere(name string) (*device, error) {
	d := &device{name: name}
	links, err := dump(unix.RTM_GETLINK)
	if err != nil {
		return nil, err
	}
	for _, m := range links {
		if m.Header.Type == unix.RTM_NEWLINK && d.readLink(&m) {
			break
		}
	}
	if d.index == 0 {
		return nil, fmt.Errorf("%s: %w", name, errNoDevice)
	}
	addresses, err := dump(unix.RTM_GETADDR)
	if err != nil {
		return nil, err
	}
	for _, m := range addresses {
		d.readAddress(&m)
	}
	routes, err := dump(unix.RTM_GETROUTE)
	if err != nil {
		return nil, err
	}
	for _, m := range routes {
		d.readRoute(&m)
	}
	return d, nil
}

// dump asks the kernel for all objects of a kind, in the namespace of this thread.
func dump(what int) ([]syscall.NetlinkMessage, error) {
	raw, err := syscall.NetlinkRIB(what, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	messages, err := syscall.ParseNetlinkMessage(raw)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return messages, nil
}

// readLink takes over a message about a link (linux/if_link.h), if it is this one.
func (d *device) readLink(m *syscall.NetlinkMessage) bool {
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil || len(m.Data) < unix.SizeofIfInfomsg {
		return false
	}
	is := device{}
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFLA_IFNAME:
			is.name = unix.ByteSliceToString(a.Value)
		case unix.IFLA_ADDRESS:
			is.mac = net.HardwareAddr(a.Value).String()
		case unix.IFLA_MTU:
			is.mtu = number(a.Value)
		case unix.IFLA_IFALIAS:
			_, is.marked = plan.ParseMark(unix.ByteSliceToString(a.Value))
		case unix.IFLA_LINK:
			is.peer = number(a.Value)
		case unix.IFLA_LINKINFO:
			is.veth = kindOf(a.Value) == "veth"
		}
	}
	if is.name != d.name {
		return false
	}
	is.index = number(m.Data[4:8])                        // ifi_index
	is.up = uint32(number(m.Data[8:12]))&unix.IFF_UP != 0 // ifi_flags
	*d = is
	return true
}

// number reads 4 bytes of netlink, which are in the machine's order.
func number(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	return int(binary.NativeEndian.Uint32(b))
}

// kindOf is the kind of a link, in IFLA_LINKINFO.
func kindOf(info []byte) string {
	for len(info) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(info))
		if size < unix.SizeofRtAttr || size > len(info) {
			return ""
		}
		if binary.NativeEndian.Uint16(info[2:]) == unix.IFLA_INFO_KIND {
			return unix.ByteSliceToString(info[unix.SizeofRtAttr:size])
		}
		info = info[min(len(info), (size+3)&^3):]
	}
	return ""
}

// readAddress takes over a message about an address (linux/if_addr.h), if it is on this link.
func (d *device) readAddress(m *syscall.NetlinkMessage) {
	if m.Header.Type != unix.RTM_NEWADDR || len(m.Data) < unix.SizeofIfAddrmsg || number(m.Data[4:8]) != d.index {
		return
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return
	}
	var ip netip.Addr
	for _, a := range attrs {
		// A link to one other address has that as IFA_ADDRESS, and its own as IFA_LOCAL.
		if a.Attr.Type == unix.IFA_LOCAL || a.Attr.Type == unix.IFA_ADDRESS && !ip.IsValid() {
			ip, _ = netip.AddrFromSlice(a.Value)
		}
	}
	if ip.IsValid() && !(ip.Is6() && ip.IsLinkLocalUnicast()) {
		d.addresses = append(d.addresses, netip.PrefixFrom(ip, int(m.Data[1])))
	}
}

// readRoute takes over a message about a route (linux/rtnetlink.h), if it is by this link.
func (d *device) readRoute(m *syscall.NetlinkMessage) {
	if m.Header.Type != unix.RTM_NEWROUTE || len(m.Data) < unix.SizeofRtMsg || m.Data[4] != unix.RT_TABLE_MAIN {
		return
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return
	}
	dst, out := netip.IPv4Unspecified(), 0
	if m.Data[0] == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(a.Value)
		case unix.RTA_OIF:
			out = number(a.Value)
		}
	}
	if out == d.index && dst.IsValid() {
		d.routes = append(d.routes, netip.PrefixFrom(dst, int(m.Data[1])))
	}
}
