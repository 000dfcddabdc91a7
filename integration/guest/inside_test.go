package guest

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// MACVLAN_MODE_BRIDGE = 4   linux/if_link.h
const macvlanModeBridge = 4

// onlyInside skips t outside of the guest.
func onlyInside(t *testing.T) {
	t.Helper()
	if os.Getenv(Inside) != "1" {
		t.Skip("runs inside the guest kernel, where TestInsideGuest starts it")
	}
}

// link is one link to make: its kind, the link below it ("" for none) and the
// attributes of its IFLA_INFO_DATA (linux/if_link.h).
type link struct {
	name, kind, below string
	data              func(*netlink.AttributeEncoder)
}

// TestInside_Links makes the whole tagged stack and a veth pair, and reads back
// that each link is what was asked for.
func TestInside_Links(t *testing.T) {
	onlyInside(t)
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	for _, l := range []link{
		{name: "underlay0", kind: "dummy"},
		{name: "pair0", kind: "veth"},
		{name: "bridge0", kind: "bridge"},
		{name: "vxlan0", kind: "vxlan", data: func(e *netlink.AttributeEncoder) {
			e.Uint32(unix.IFLA_VXLAN_ID, 4242)
			e.Bytes(unix.IFLA_VXLAN_LOCAL, net.IPv4(192, 0, 2, 1).To4())
			e.Bytes(unix.IFLA_VXLAN_PORT, binary.BigEndian.AppendUint16(nil, 4789)) // RFC 7348 §5
			e.Uint8(unix.IFLA_VXLAN_LEARNING, 0)
		}},
		{name: "vlan0", kind: "vlan", below: "vxlan0", data: func(e *netlink.AttributeEncoder) {
			e.Uint16(unix.IFLA_VLAN_ID, 7)
		}},
		{name: "fabric0", kind: "macvlan", below: "vlan0", data: func(e *netlink.AttributeEncoder) {
			e.Uint32(unix.IFLA_MACVLAN_MODE, macvlanModeBridge)
		}},
	} {
		if err := makeLink(conn, l); err != nil {
			t.Fatalf("make %s: %v", l.name, err)
		}
		got, err := kindOf(conn, l.name)
		if err != nil || got != l.kind {
			t.Errorf("%s: got kind %q, %v, want %q", l.name, got, err, l.kind)
		}
	}
}

func makeLink(conn *netlink.Conn, l link) error {
	e := netlink.NewAttributeEncoder()
	e.String(unix.IFLA_IFNAME, l.name)
	if l.below != "" {
		below, err := net.InterfaceByName(l.below)
		if err != nil {
			return err
		}
		e.Uint32(unix.IFLA_LINK, uint32(below.Index))
	}
	e.Nested(unix.IFLA_LINKINFO, func(e *netlink.AttributeEncoder) error {
		e.String(unix.IFLA_INFO_KIND, l.kind)
		if l.data != nil {
			e.Nested(unix.IFLA_INFO_DATA, func(e *netlink.AttributeEncoder) error {
				l.data(e)
				return nil
			})
		}
		return nil
	})
	attributes, err := e.Encode()
	if err != nil {
		return err
	}
	_, err = conn.Execute(netlink.Message{
		Header: netlink.Header{
			Type:  unix.RTM_NEWLINK,
			Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Excl,
		},
		Data: append(make([]byte, unix.SizeofIfInfomsg), attributes...),
	})
	return err
}

// kindOf asks the kernel for the kind of the link called name.
func kindOf(conn *netlink.Conn, name string) (kind string, err error) {
	e := netlink.NewAttributeEncoder()
	e.String(unix.IFLA_IFNAME, name)
	attributes, err := e.Encode()
	if err != nil {
		return "", err
	}
	answers, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request},
		Data:   append(make([]byte, unix.SizeofIfInfomsg), attributes...),
	})
	if err != nil {
		return "", err
	}
	if len(answers) != 1 || len(answers[0].Data) < unix.SizeofIfInfomsg {
		return "", fmt.Errorf("got %d answers, want one link", len(answers))
	}
	d, err := netlink.NewAttributeDecoder(answers[0].Data[unix.SizeofIfInfomsg:])
	if err != nil {
		return "", err
	}
	for d.Next() {
		if d.Type() == unix.IFLA_LINKINFO {
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					if d.Type() == unix.IFLA_INFO_KIND {
						kind = d.String()
					}
				}
				return nil
			})
		}
	}
	return kind, d.Err()
}
