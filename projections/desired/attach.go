package desired

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"rutter/log"
)

// MaxDevice is how many bytes the name of a device may have: IFNAMSIZ of linux/if.h, less
// the final zero.
const MaxDevice = 15

// NoUser is no user id: the kernel has no user for it (uid_t -1).
const NoUser = 1<<32 - 1

// Attach says where the link of a NIC ends. It is a fact of the node that the source of the
// VM tells, and never in the log. The zero value is a link fabric<N> in the network
// namespace of the VM.
type Attach struct {
	// Tap: the NIC has a persistent tap device in the node's own namespace, which a
	// hypervisor opens, and nothing in a namespace of the VM. The guest configures itself.
	Tap bool
	// Name is that of the tap, or of the link in the VM's namespace. It is chosen by the
	// source, and of a tap never empty.
	Name string
	// User is the user id that may open the tap, beside those with CAP_NET_ADMIN.
	User uint32
}

// Check says why a source cannot have such an attachment. Names that are those of other
// links of the node are found only when the link is made.
func (a Attach) Check() error {
	switch {
	case a.Name == "" && a.Tap:
		return fmt.Errorf("a tap needs the name of its device: send device, such as tap0")
	case a.Name == "":
	case len(a.Name) > MaxDevice:
		return fmt.Errorf("the name of a device, %q, has %d bytes: at most %d fit into the kernel", a.Name, len(a.Name), MaxDevice)
	case strings.ContainsFunc(a.Name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`/:%"'\`, r) }):
		return fmt.Errorf("%q is no name of a device: use letters, digits, -, _ and . only", a.Name)
	case slices.Contains([]string{".", "..", "lo", "all", "default"}, a.Name):
		return fmt.Errorf("%q cannot be the name of a device: the kernel uses it itself; choose another one", a.Name)
	}
	switch {
	case a.User == NoUser:
		return fmt.Errorf("user %d is no user id: send that of the hypervisor's process, or 0", a.User)
	case a.User != 0 && !a.Tap:
		return fmt.Errorf("user %d: only a tap has a user; send kind tap, or no user", a.User)
	}
	return nil
}

// String describes it, such as "tap rt90b8d0000001 of user 64055".
func (a Attach) String() string {
	switch {
	case a.Tap:
		return fmt.Sprintf("tap %s of user %d", a.Name, a.User)
	case a.Name != "":
		return "device " + a.Name
	}
	return "device fabric<N>"
}

// Attach sets where each link ends, as of says. A tap is in no namespace, and has no routes,
// resolvers and neighbours: they are the guest's own business. Its addresses are those from
// which the guest may send. The slices of links are changed in place.
func (l *Links) Attach(of func(mac log.MAC) Attach) {
	taps := false
	for i := range l.Fabrics {
		f := &l.Fabrics[i]
		f.Attach = of(f.MAC)
		if f.Attach.Tap {
			taps = true
			f.Namespace, f.Gateway, f.Routes, f.Resolvers = "", netip.Addr{}, nil, nil
		}
	}
	if taps {
		l.Neighs = slices.DeleteFunc(l.Neighs, func(n Neigh) bool { return of(n.Link).Tap })
	}
}

// Attach is Links.Attach for what changes of them.
func (d *LinksDelta) Attach(of func(mac log.MAC) Attach) {
	if d.Part != nil {
		d.Part.Links.Attach(of)
	}
	onTap := func(n Neigh) bool { return of(n.Link).Tap }
	d.Neighs, d.NoNeighs = slices.DeleteFunc(d.Neighs, onTap), slices.DeleteFunc(d.NoNeighs, onTap)
}
