package qemu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/log"
)

// Errors of OpenTap.
var (
	// ErrNoTap: the node has no such device yet, or it is not marked as this NIC's.
	ErrNoTap = errors.New("the tap is not there")
	// ErrTapBusy: another process has the tap.
	ErrTapBusy = errors.New("another process has the tap")
)

// tapFlags are those with which the agent makes a NIC's tap (linux/if_tun.h).
const tapFlags = unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR

// OpenTap opens the tap of a NIC in the network namespace of this thread, and returns its
// MTU in bytes. It makes no device: what is not there, or is not marked as the tap of this
// NIC, is ErrNoTap. So a manifest cannot name the tap of another VM, or of another program.
// Needs CAP_NET_ADMIN.
func OpenTap(name string, mac log.MAC) (file *os.File, mtu int, err error) {
	before, err := findTap(name, mac)
	if err != nil {
		return nil, 0, err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("/dev/net/tun: %w: is the module tun loaded?", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, 0, fmt.Errorf("tap %q: %w", name, err)
	}
	request.SetUint16(tapFlags)
	err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	if errors.Is(err, unix.EBUSY) {
		return nil, 0, fmt.Errorf("%w: %s", ErrTapBusy, name)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("tap %s: %w", name, err)
	}
	// If the device went away meanwhile, the kernel made another one, which goes with fd.
	after, err := findTap(name, mac)
	if err == nil && after.index != before.index {
		err = fmt.Errorf("%w: %s went away", ErrNoTap, name)
	}
	if err != nil {
		return nil, 0, err
	}
	return os.NewFile(uintptr(fd), name), after.mtu, nil
}

// CheckTap reports whether a device is there with the mark of the NIC's tap. Error:
// ErrNoTap.
func CheckTap(name string, mac log.MAC) error {
	_, err := findTap(name, mac)
	return err
}

// aliasWord is the first word of the alias of each link of the agent's, of which the last is
// the MAC of a NIC (agent/link/plan, Mark).
const aliasWord = "rutter"

// findTap finds the tap of a NIC by its name and its mark.
func findTap(name string, mac log.MAC) (link, error) {
	l, err := linkNamed(name)
	if err != nil {
		return l, err
	}
	words := strings.Fields(l.alias)
	if len(words) == 0 {
		return l, fmt.Errorf("%w: %s is not marked as a link of the agent", ErrNoTap, name)
	}
	if of, err := log.ParseMAC(words[len(words)-1]); err != nil || of != mac || words[0] != aliasWord {
		return l, fmt.Errorf("%w: %s is the device of something else: its alias is %.100q", ErrNoTap, name, l.alias)
	}
	return l, nil
}

// link is a device of the node.
type link struct {
	index int32
	mtu   int
	alias string
}

// linkNamed asks the kernel for a device (rtnetlink(7)).
func linkNamed(name string) (l link, err error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return l, err
	}
	defer conn.Close()
	encoder := netlink.NewAttributeEncoder()
	encoder.String(unix.IFLA_IFNAME, name)
	attributes, err := encoder.Encode()
	if err != nil {
		return l, err
	}
	body := append(make([]byte, unix.SizeofIfInfomsg), attributes...)
	answers, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request}, Data: body})
	if errors.Is(err, unix.ENODEV) {
		return l, fmt.Errorf("%w: %s", ErrNoTap, name)
	}
	if err != nil {
		return l, fmt.Errorf("device %q: %w", name, err)
	}
	for _, answer := range answers {
		if answer.Header.Type != unix.RTM_NEWLINK || len(answer.Data) < unix.SizeofIfInfomsg {
			continue
		}
		l.index = int32(binary.NativeEndian.Uint32(answer.Data[4:])) // ifi_index
		decoder, err := netlink.NewAttributeDecoder(answer.Data[unix.SizeofIfInfomsg:])
		if err != nil {
			return l, fmt.Errorf("device %q: %w", name, err)
		}
		for decoder.Next() {
			switch decoder.Type() {
			case unix.IFLA_MTU:
				l.mtu = int(decoder.Uint32())
			case unix.IFLA_IFALIAS:
				l.alias = decoder.String()
			}
		}
		return l, decoder.Err()
	}
	return l, fmt.Errorf("%w: %s", ErrNoTap, name)
}
