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
	// None: the VM let the NIC go, and the log is not told yet. It has no link.
	None bool
}

// Check says why a source cannot have such an attachment. Names that are those of other
// links of the node are found only when the link is made.
func (a Attach) Check() error {
	switch {
	case a.None && a != Attach{None: true}:
		return fmt.Errorf("a NIC that was let go has no tap, device or user: send none of them")
	case a.None:
		return nil
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
	case a.None:
		return "nothing: it was let go"
	case a.Tap:
		return fmt.Sprintf("tap %s of user %d", a.Name, a.User)
	case a.Name != "":
		return "device " + a.Name
	}
	return "device fabric<N>"
}

// Attach sets where each link ends, as of says. A tap is in no namespace, and has no routes,
// resolvers and neighbours: they are the guest's own business. Its addresses are those from
// which the guest may send. A NIC that was let go has no link. The slices of links are changed
// in place.
func (l *Links) Attach(of func(mac log.MAC) Attach) {
	l.Fabrics = slices.DeleteFunc(l.Fabrics, func(f Fabric) bool { return of(f.MAC).None })
	taps := map[log.MAC]bool{}
	for i := range l.Fabrics {
		f := &l.Fabrics[i]
		f.Attach = of(f.MAC)
		if f.Attach.Tap {
			taps[f.MAC] = true
			f.Namespace, f.Gateway, f.Routes, f.Resolvers = "", netip.Addr{}, nil, nil
		}
	}
	l.Neighs = slices.DeleteFunc(l.Neighs, func(n Neigh) bool { return taps[n.Link] || of(n.Link).None })
}

// Attach is Links.Attach for what changes of them.
func (d *LinksDelta) Attach(of func(mac log.MAC) Attach) {
	if d.Part != nil {
		d.Part.Links.Attach(of)
	}
	ours := func(n Neigh) bool { a := of(n.Link); return a.Tap || a.None }
	d.Neighs, d.NoNeighs = slices.DeleteFunc(d.Neighs, ours), slices.DeleteFunc(d.NoNeighs, ours)
}
