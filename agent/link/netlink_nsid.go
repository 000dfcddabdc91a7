package link

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
)

// NamespaceNumber returns the number that our own namespace has for the named one
// (RTM_GETNSID), -1 for our own. If there is no number, it makes the kernel assign one,
// because a namespace without a number sends no notifications here. ErrNoNamespace:
// there is no namespace of that name.
func (h *Netlink) NamespaceNumber(name string) (int32, error) {
	if name == "" {
		return -1, nil
	}
	sp, err := h.open(name)
	if err != nil {
		return -1, err
	}
	defer h.closeSpaces()
	return h.number(sp)
}

// number returns the number that our own namespace has for another one. If there is
// none, it makes the kernel assign one (RTM_NEWNSID), because a namespace without a
// number sends no notifications here. Negative: the kernel assigned none.
func (h *Netlink) number(sp *namespaceConn) (int32, error) {
	number, err := namespaceID(h.own.conn, sp)
	if err != nil || number >= 0 {
		return number, err
	}
	var e wire.Encoder
	e.NamespaceID(int(sp.file.Fd()))
	give := netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWNSID, Flags: netlink.Request | netlink.Acknowledge}, Data: e.B}
	if _, err := h.own.conn.Execute(give); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, fmt.Errorf("link: give namespace %s a number: %w", sp.name, err)
	}
	return namespaceID(h.own.conn, sp)
}
