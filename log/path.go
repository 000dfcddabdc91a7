package log

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// MaxPaths bounds Server.UnderlayPaths: the narrowest say what a network may have.
const MaxPaths = 16

// PathTo is a path to another VTEP: the largest IP packet, in bytes, that arrives there
// whole.
type PathTo struct {
	Addr netip.Addr
	MTU  uint32
}

// String returns the form of Server.UnderlayPaths, as in "192.0.2.7 1400".
func (p PathTo) String() string { return p.Addr.String() + " " + strconv.FormatUint(uint64(p.MTU), 10) }

// ParsePathTo reads what String returns.
func ParsePathTo(text string) (p PathTo, err error) {
	addr, number, _ := strings.Cut(text, " ")
	mtu, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return p, fmt.Errorf("%s is no path: an address, a blank and a number of bytes are wanted, as in 192.0.2.7 1400", Quote(text))
	}
	p.MTU = uint32(mtu)
	if p.Addr, err = netip.ParseAddr(addr); err != nil || p.String() != text || p.Addr.Zone() != "" || p.Addr.Is4In6() {
		return PathTo{}, fmt.Errorf("%s is no path: an address, a blank and a number of bytes are wanted, as in 192.0.2.7 1400", Quote(text))
	}
	return p, nil
}
