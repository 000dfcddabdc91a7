package plan

import "errors"

var (
	// ErrForeign is wrapped when a link that is not ours is in the way: it
	// carries one of our names, or sits on a link that should go. It is left
	// alone until somebody renames or removes it.
	ErrForeign = errors.New("link: foreign link in the way")
	// ErrNoNamespace is wrapped when a VM's network namespace does not exist
	// (yet). The rest of the pass is not held up by it.
	ErrNoNamespace = errors.New("link: no such network namespace")
	// ErrNo8021Q is wrapped when a tagged fabric is wanted and the kernel cannot
	// make VLAN links. The fabric is left out: without its tag it would be
	// another network on the wire.
	ErrNo8021Q = errors.New("link: kernel has no 802.1Q support: load module 8021q, or build the kernel with CONFIG_VLAN_8021Q")
	// ErrNotMade is wrapped by what hangs on a link that could not be made. The
	// cause is reported with that link.
	ErrNotMade = errors.New("link: the link that this needs is not there")
	// ErrIncomplete is wrapped when a link should be rebuilt, but carries links
	// that an incomplete view of the log cannot judge.
	ErrIncomplete = errors.New("link: waits for the complete view")
)
