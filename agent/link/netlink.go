package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/filter"
	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
)

// Config has the locations of the kernel's files. The zero value is right for an agent
// that runs in the node's own namespace.
type Config struct {
	// OwnNamespace is the file of the namespace in which the VXLAN devices are
	// made. Default: the namespace of the thread that calls Open.
	OwnNamespace string
	// NetNSDir is where the VM namespaces are found by name. Default /run/netns,
	// as ip-netns(8) has it.
	NetNSDir string
	// EtcNetNSDir is where <namespace>/resolv.conf is written. Default /etc/netns.
	EtcNetNSDir string
	// Filter holds the rules of port security in our own namespace; nil: there are none.
	// The owner closes it.
	Filter filter.Table

	viewEvery  time.Duration // of tests and benchmarks; default viewEvery
	missBuffer int           // of tests; default miss.Config's
	localWait  time.Duration // of tests; default localWait
}

func (c Config) withDefaults() Config {
	c.NetNSDir = cmp.Or(c.NetNSDir, "/run/netns")
	c.EtcNetNSDir = cmp.Or(c.EtcNetNSDir, "/etc/netns")
	c.localWait = cmp.Or(c.localWait, localWait)
	return c
}

const (
	// batchMessages is how many messages one sendmsg sends: the rate does not grow
	// beyond this (spec/kernel.md section 4).
	batchMessages = 128
	// batchBytes keeps a batch below the default send buffer (212,992 bytes).
	batchBytes = 64 << 10
	// maxTrash bounds how long one message may keep the kernel busy.
	maxTrash = 512
	// localWait bounds the wait of a batch for added IPv6 addresses and for carriers, and
	// localPoll is the pause between two checks. The kernel needs about 1 ms.
	localWait = 250 * time.Millisecond
	localPoll = time.Millisecond
	// ackTimeout bounds the wait for the kernel. It answers before sendmsg returns,
	// unless the receive buffer was full.
	ackTimeout = 10 * time.Second
)

// Netlink is the real kernel. It must be closed. One goroutine at a time may use it,
// except for Watch.
type Netlink struct {
	cfg    Config
	own    *namespaceConn
	spaces map[string]*namespaceConn // open VM namespaces, during a dump or a batch only

	// index has each link of ours that was seen or made. lastIndex is the ifindex that
	// was chosen last, and taken are those from plan.FirstIndex on that the last dump saw.
	index     map[plan.LinkKey]int32
	lastIndex int32
	taken     map[int32]struct{}
	// identify says which links of a dump are ours; nil: those with one of our names.
	identify func(have *plan.Snapshot)
	// noTrash is set when the last dump saw a link in plan.TrashGroup.
	noTrash bool

	expected *expected
	// aside is set on the writer of Ask, which uses what the kernel's own user found
	// out.
	aside bool

	slow map[plan.LinkKey]bool // links for which a wait was in vain: see run.await

	acks []byte   // memory for the answers to a batch
	kept connPool // sockets in VM namespaces, for dumps

	// interfaces are those of the last dump of everything, for parts.
	interfaces []plan.Interface

	views    map[string]*view  // VM namespaces whose last dump is still valid
	unread   map[string]unread // VM namespaces that could not be read
	part     int               // the part that was read last although its views were valid
	partRead time.Time         // when
}

var _ plan.Kernel = (*Netlink)(nil)

const (
	flagsCreate  = netlink.Create | netlink.Excl
	flagsReplace = netlink.Create | netlink.Replace
)

// Open opens a netlink socket in our own namespace. It fails when that namespace
// cannot be entered. Open and Close need no privilege; changing the kernel needs
// CAP_NET_ADMIN, and entering namespaces CAP_SYS_ADMIN, both in the user
// namespace that owns them.
func Open(cfg Config) (*Netlink, error) {
	cfg = cfg.withDefaults()
	own, err := openOwn(cfg.OwnNamespace)
	if err != nil {
		return nil, fmt.Errorf("link: open netlink: %w", err)
	}
	return &Netlink{cfg: cfg, own: own, spaces: map[string]*namespaceConn{}, index: map[plan.LinkKey]int32{}, taken: map[int32]struct{}{}, lastIndex: plan.FirstIndex, expected: newExpected(), views: map[string]*view{}, slow: map[plan.LinkKey]bool{}}, nil
}

// Close frees the socket. The kernel's links stay as they are.
func (h *Netlink) Close() error {
	h.closeSpaces()
	h.kept.hold(nil)
	return h.own.close()
}

// Do implements Kernel. Steps for one namespace that follow each other go out
// together.
func (h *Netlink) Do(ctx context.Context, steps []plan.Step) []error {
	r := &run{h: h, steps: steps, failed: map[plan.LinkKey]bool{}, numbered: map[string]bool{}}
	if !h.aside {
		defer h.closeSpaces()
	} else if len(h.spaces) >= maxAside {
		h.closeSpaces()
	}
	for i := 0; i < len(steps); i++ {
		if err := ctx.Err(); err != nil {
			r.fail(i, err)
			continue
		}
		if n := r.deletes(i); n > 1 {
			i += n - 1
			continue
		}
		if n := r.rules(ctx, i); n > 0 {
			i += n - 1
			continue
		}
		if err := r.add(i); err != nil {
			r.flush()
			r.fail(i, err)
		}
	}
	r.flush()
	r.await(ctx, append(r.locals(), r.pairs()...))
	return r.errs
}

// run is one running Do: a batch of messages for one namespace, and the failures so
// far.
type run struct {
	h     *Netlink
	steps []plan.Step
	errs  []error // nil until the first failure
	// failed are links that could not be made in this run.
	failed map[plan.LinkKey]bool
	// numbered are the namespaces that were given a number in this run.
	numbered map[string]bool

	space    *namespaceConn
	enc      wire.Encoder
	requests []request
	batch    []byte // memory of the last batch
	added    []int  // steps that added an IPv6 address
}

// add puts step i into the batch. If the batch is full or for another namespace, it is
// sent first. Steps on files wait for the batch, and are executed at once.
func (r *run) add(i int) error {
	s := &r.steps[i]
	r.h.touch(s)
	switch s.Op {
	case plan.OpWriteResolvers, plan.OpRemoveResolvers:
		r.flush()
		return r.h.resolvers(s)
	case plan.OpAddLink:
		return r.addLink(i)
	}
	sp := r.space
	if sp == nil || sp.name != s.Namespace {
		var err error
		if sp, err = r.h.open(s.Namespace); err != nil {
			return err
		}
	}
	r.use(sp)
	at := plan.LinkKey{Namespace: s.Namespace, Name: s.Link}
	index, ok := r.h.indexOf(at)
	if !ok || len(r.failed) > 0 && r.failed[at] {
		if isDelete(s.Op) {
			return nil
		}
		return fmt.Errorf("%w: %s", plan.ErrNotMade, s.Link)
	}
	if s.Change&plan.ChangeMaster != 0 {
		if _, is := r.h.index[plan.LinkKey{Namespace: "", Name: s.Spec.Master}]; !is { // else it would leave its bridge
			return fmt.Errorf("%w: %s", plan.ErrNotMade, s.Spec.Master)
		}
	}
	if s.Change&plan.ChangeUser != 0 {
		return r.setUser(i, index)
	}
	r.encode(i, index)
	return nil
}

// use makes sp the namespace of the batch.
func (r *run) use(sp *namespaceConn) {
	if r.space != sp || len(r.requests) >= batchMessages || len(r.enc.B) >= batchBytes {
		r.flush()
	}
	r.space = sp
}

// message records that the bytes from start on are the body of one message.
func (r *run) message(i int, typ netlink.HeaderType, flags netlink.HeaderFlags, start int) *request {
	r.requests = append(r.requests, request{typ: typ, flags: flags, start: start, end: len(r.enc.B), step: i})
	return &r.requests[len(r.requests)-1]
}

func (r *run) addLink(i int) error {
	h, l := r.h, r.steps[i].Spec
	r.use(h.own)
	var parent int32 // or the bridge of a pair
	if needs := l.Needs(); needs != "" {
		var ok bool
		if parent, ok = h.index[plan.LinkKey{Namespace: "", Name: needs}]; !ok || r.failed[plan.LinkKey{Namespace: "", Name: needs}] {
			r.failLink(l)
			return fmt.Errorf("%w: %s", plan.ErrNotMade, needs)
		}
	}
	netns := -1
	if l.Namespace != "" {
		sp, err := h.open(l.Namespace)
		if err != nil {
			r.failLink(l)
			return err
		}
		netns = int(sp.file.Fd())
		if !r.numbered[l.Namespace] {
			start := len(r.enc.B)
			r.enc.NamespaceID(netns)
			r.message(i, unix.RTM_NEWNSID, 0, start).optional = true
			r.numbered[l.Namespace] = true
		}
	}
	index := h.nextIndex()
	h.index[l.Key()] = index
	delete(r.failed, l.Key())
	if l.Kind == plan.KindTap {
		return r.addTap(i, l, index)
	}
	if l.Peer != nil {
		r.addPair(i, l, index, parent, netns)
		return nil
	}
	start := len(r.enc.B)
	switch l.Kind {
	case plan.KindBridge:
		r.enc.Bridge(l, index)
	case plan.KindVXLAN:
		r.enc.VXLAN(l, index)
	case plan.KindVLAN:
		r.enc.VLAN(l, index, parent)
	default:
		r.enc.Macvlan(l, index, parent, netns)
	}
	r.message(i, unix.RTM_NEWLINK, flagsCreate, start).index = index
	switch {
	case l.Kind == plan.KindMacvlan:
	case l.Up:
		r.encodeSet(i, l, index, plan.ChangeQuietIPv6|plan.ChangeUp|plan.ChangeMark)
	default: // it is put up when its rules are there
		r.encodeSet(i, l, index, plan.ChangeQuietIPv6|plan.ChangeMark)
	}
	return nil
}

// encodeSet appends the messages of an OpSetLink.
func (r *run) encodeSet(i int, l *plan.Link, index int32, change plan.Change) {
	if change&plan.ChangeQuietIPv6 != 0 {
		start := len(r.enc.B)
		r.enc.Quiet(index)
		r.message(i, unix.RTM_NEWLINK, 0, start).optional = true
	}
	if change&plan.ChangeMaster != 0 {
		start := len(r.enc.B)
		r.enc.Master(index, r.h.index[plan.LinkKey{Namespace: "", Name: l.Master}])
		r.message(i, unix.RTM_NEWLINK, 0, start)
	}
	if change&plan.ChangeFlags != 0 {
		start := len(r.enc.B)
		r.enc.PortFlags(l.Flags, index)
		r.message(i, unix.RTM_NEWLINK, 0, start)
	}
	if change&^(plan.ChangeQuietIPv6|plan.ChangeMaster|plan.ChangeFlags) != 0 {
		start := len(r.enc.B)
		r.enc.Set(l, index, change)
		r.message(i, unix.RTM_NEWLINK, 0, start)
	}
}

// encode appends the messages of a step on an existing link.
func (r *run) encode(i int, index int32) {
	s, start, before := &r.steps[i], len(r.enc.B), len(r.requests)
	defer func() {
		if before < len(r.requests) {
			r.requests[before].index = index
		}
	}()
	switch s.Op {
	case plan.OpSetLink:
		r.encodeSet(i, s.Spec, index, s.Change)
	case plan.OpDelLink:
		r.enc.LinkHeader(index, 0, 0)
		r.message(i, unix.RTM_DELLINK, 0, start)
		delete(r.h.index, plan.LinkKey{Namespace: s.Namespace, Name: s.Link})
	case plan.OpSetProbes:
		r.enc.Probes(*s, index)
		r.message(i, unix.RTM_SETNEIGHTBL, 0, start).optional = s.Addr.Is6()
	case plan.OpAddAddress:
		r.enc.Address(*s, index)
		r.message(i, unix.RTM_NEWADDR, flagsReplace, start)
		if s.Prefix.Addr().Is6() {
			r.added = append(r.added, i)
		}
	case plan.OpDelAddress:
		r.enc.Address(*s, index)
		r.message(i, unix.RTM_DELADDR, 0, start)
	case plan.OpSetRoute:
		r.enc.Route(*s, index)
		r.message(i, unix.RTM_NEWROUTE, flagsReplace, start)
	case plan.OpDelRoute:
		r.enc.Route(*s, index)
		r.message(i, unix.RTM_DELROUTE, 0, start)
	case plan.OpSetNeigh:
		r.enc.Neigh(*s, index)
		r.message(i, unix.RTM_NEWNEIGH, flagsReplace, start)
	case plan.OpDelNeigh:
		r.enc.Neigh(*s, index)
		r.message(i, unix.RTM_DELNEIGH, 0, start)
	case plan.OpSetFDB:
		r.enc.Forward(*s, index)
		r.message(i, unix.RTM_NEWNEIGH, flagsReplace, start)
	case plan.OpDelFDB:
		r.enc.Forward(*s, index)
		r.message(i, unix.RTM_DELNEIGH, 0, start)
	case plan.OpSetStatic:
		r.enc.Static(*s, index)
		r.message(i, unix.RTM_NEWNEIGH, flagsReplace, start)
	case plan.OpDelStatic:
		r.enc.Static(*s, index)
		r.message(i, unix.RTM_DELNEIGH, 0, start)
	case plan.OpAddFlood:
		r.enc.Forward(*s, index)
		r.message(i, unix.RTM_NEWNEIGH, netlink.Create|netlink.Append, start)
	case plan.OpDelFlood:
		r.enc.Forward(*s, index)
		r.message(i, unix.RTM_DELNEIGH, 0, start)
	}
}

// deletes puts the deletes of links that begin at step i into the batch as one: the
// links move to a group of their own, and the group is deleted. That takes the kernel
// as long as one link. It returns how many steps that were; up to 1 means that nothing
// was done.
func (r *run) deletes(i int) int {
	n := 0
	for n < maxTrash && i+n < len(r.steps) && r.steps[i+n].Op == plan.OpDelLink && r.steps[i+n].Namespace == "" {
		n++
	}
	if n < 2 || r.h.noTrash {
		return 0
	}
	for j := i; j < i+n; j++ {
		r.use(r.h.own)
		r.h.touch(&r.steps[j])
		at := plan.LinkKey{Namespace: "", Name: r.steps[j].Link}
		if index, ok := r.h.index[at]; ok {
			start := len(r.enc.B)
			r.enc.LinkHeader(index, 0, 0)
			r.enc.Attr32(unix.IFLA_GROUP, plan.TrashGroup)
			r.message(j, unix.RTM_NEWLINK, 0, start).index = index
			delete(r.h.index, at)
		}
	}
	start := len(r.enc.B)
	r.enc.LinkHeader(0, 0, 0)
	r.enc.Attr32(unix.IFLA_GROUP, plan.TrashGroup)
	r.message(i+n-1, unix.RTM_DELLINK, 0, start)
	return n
}

func (r *run) fail(i int, err error) {
	if r.errs == nil {
		r.errs = make([]error, len(r.steps))
	}
	if r.errs[i] == nil {
		r.errs[i] = fmt.Errorf("%s: %w", r.steps[i], err)
	}
}

// flush sends the batch in one sendmsg. Only the last message asks for an
// acknowledgement; the errors of the others come by themselves, before it.
func (r *run) flush() {
	if len(r.requests) == 0 {
		return
	}
	requests := r.requests
	r.h.expected.note(r.steps, requests)
	first := r.space.sequence + 1
	r.space.sequence += uint32(len(requests))
	batch := r.batch[:0]
	for i, q := range requests {
		flags := netlink.Request | q.flags
		if i == len(requests)-1 {
			flags |= netlink.Acknowledge
		}
		batch = wire.AppendMessage(batch, q.typ, flags, first+uint32(i), r.enc.B[q.start:q.end])
	}
	r.batch = batch
	err := r.space.send(batch)
	if err == nil {
		err = r.receiveAcks(first, r.space.sequence)
	}
	if err != nil {
		for _, q := range requests {
			if r.steps[q.step].Op == plan.OpAddLink {
				r.failLink(r.steps[q.step].Spec)
			}
			r.fail(q.step, err)
		}
	}
	r.requests, r.enc.B = r.requests[:0], r.enc.B[:0]
}

// acknowledge handles the kernel's error for one message.
func (r *run) acknowledge(q request, op *netlink.OpError) {
	s := &r.steps[q.step]
	errno, _ := errors.AsType[syscall.Errno](op)
	if isDelete(s.Op) && isGone(errno) {
		return
	}
	if q.optional && (isGone(errno) || errno == unix.EEXIST || errno == unix.EAFNOSUPPORT || errno == unix.EOPNOTSUPP) {
		return
	}
	at := plan.LinkKey{Namespace: s.Namespace, Name: s.Link}
	err := error(errno)
	if op.Message != "" {
		err = fmt.Errorf("%w: %s", errno, op.Message)
	}
	switch {
	case s.Op == plan.OpAddLink && r.failed[plan.LinkKey{Namespace: "", Name: s.Spec.Needs()}]:
		err = fmt.Errorf("%w: %s", plan.ErrNotMade, s.Spec.Needs())
	case s.Op == plan.OpAddLink && s.Spec.Kind == plan.KindVLAN && errno == unix.EOPNOTSUPP:
		err = plan.ErrNo8021Q
	case errno == unix.EEXIST && s.Spec != nil && s.Spec.As != "":
		err = fmt.Errorf("%w: a link %s is there: rename or remove it", plan.ErrForeign, s.Spec.As)
	case errno == unix.EXFULL:
		err = plan.ErrBridgeFull
	case s.Op != plan.OpAddLink && r.failed[at]:
		err = fmt.Errorf("%w: %s", plan.ErrNotMade, s.Link)
	}
	if s.Op == plan.OpAddLink && q.flags == flagsCreate {
		r.failLink(s.Spec)
	}
	r.fail(q.step, err)
}

// request is one message of a step: its header's type and flags, and where its
// body lies in the batch's buffer.
type request struct {
	typ        netlink.HeaderType
	flags      netlink.HeaderFlags
	start, end int
	step       int   // index of the step
	index      int32 // the ifindex of its link, 0 if the message is not on one
	peer       int32 // that of the node's end, if it makes a veth pair
	// optional: the kernel may lack what this asks for (IPv6 switched off), or have it
	// already.
	optional bool
}
