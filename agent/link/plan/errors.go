package plan

import "errors"

var (
	// ErrForeign is wrapped when a link that is not ours is in the way: it has one of
	// our names, or is on a link that should be removed. It stays until an operator
	// renames or removes it.
	ErrForeign = errors.New("link: foreign link in the way")
	// ErrNoNamespace is wrapped when a VM's network namespace does not exist (yet). The
	// rest of the pass continues.
	ErrNoNamespace = errors.New("link: no such network namespace")
	// ErrBadNamespace is wrapped when a VM's network namespace cannot be used: its file is
	// not a network namespace, or may not be opened, or the namespace cannot be entered
	// or read. What is in other namespaces does not wait for it.
	ErrBadNamespace = errors.New("link: network namespace cannot be used")
	// ErrNo8021Q is wrapped when a tagged fabric is wanted and the kernel cannot make
	// VLAN links. The fabric is left out: without its tag it would be another network
	// on the wire.
	ErrNo8021Q = errors.New("link: kernel has no 802.1Q support: load module 8021q, or build the kernel with CONFIG_VLAN_8021Q")
	// ErrBridgeFull is wrapped when a bridge has as many ports as the kernel allows
	// (BR_MAX_PORTS, linux net/bridge/br_private.h): no further VM is attached to it.
	ErrBridgeFull = errors.New("link: the bridge has 1,023 ports, which is the most: have fewer VMs of this vnet and VLAN on this node")
	// ErrAttach is wrapped when a NIC cannot be attached where the source of its VM says: the
	// name is no device's, or one of ours, or another NIC has it, or there is no port
	// security, without which there is no bridge for a tap. What the NIC has stays.
	ErrAttach = errors.New("link: it cannot be attached as its VM's source says")
	// ErrNotMade is wrapped for objects on a link that could not be made. The cause is
	// reported with that link.
	ErrNotMade = errors.New("link: the link that this needs is not there")
	// ErrIncomplete is wrapped when a link should be rebuilt, but has links on it that
	// may be removed only with a complete view of the log.
	ErrIncomplete = errors.New("link: waits for the complete view")
)
