package world

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/history"
	"rutter/integration/simulate/oracle"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/log/feed"
	"rutter/raftstore"
)

// liar is who has taken a compute node over, with its certificate: instead of the agent, it says
// and asks what is not that node's.
type liar struct {
	*node
	rnd    *rand.Rand
	keeper *tlsgate.Keeper // nil: without TLS, where identities are not checked
	victim vm              // on another node; only liars touch it
	other  int             // that node
	items  int             // that it heard
}

// lie stops the agent, lies, and starts it again: what an operator does with a node that was
// taken over and is well again.
func (n *node) lie(f history.Fault) error {
	if !n.claim() {
		return errBusy
	}
	defer n.release()
	if err := n.stop(); err != nil {
		return err
	}
	n.kernel.lied()
	l := &liar{node: n, rnd: n.w.rand(fmt.Sprint("lie", f.On, f.At))}
	err := l.all()
	time.Sleep(10 * time.Millisecond) // incarnations are times in milliseconds: the agent's is later
	return errors.Join(err, n.w.begin(n))
}

func (l *liar) all() (err error) {
	if l.keeper, err = l.keeperOf(); err != nil {
		return err
	}
	server := l.w.servers[l.rnd.IntN(len(l.w.servers))]
	api, err := l.w.clientOf(l.host, server.name, 0, l.keeper, 0)
	if err != nil {
		return err
	}
	defer api.Close()
	l.other = (l.i + 1 + l.rnd.IntN(len(l.w.nodes)-1)) % len(l.w.nodes)
	if l.keeper != nil {
		if err := l.place(); err != nil {
			return err
		}
		l.writes(api)
		l.reads(api)
		l.follow(api, server, cnID(l.other), false)
	}
	l.follow(api, server, l.cn, false)
	l.follow(api, server, l.cn, true)
	l.follow(api, server, l.cn, true)
	return nil
}

// place makes a VM on another node, which no client moves or deletes.
func (l *liar) place() error {
	api, err := l.w.client(l.w.net.Host("operator"), "", 0)
	if err != nil {
		return err
	}
	defer api.Close()
	var m model
	m.next = 1<<20 + l.rnd.Uint32N(1<<20)
	c := &log.Change{ID: changeID(l.rnd), Ops: m.create(l.rnd, l.other)}
	l.victim = m.vms[0]
	if e := l.w.write(l.w.ctx, "operator", "changes", api.Submit, c); e.Outcome != seen.Accepted {
		return fmt.Errorf("a VM to lie about: %s", e.Err)
	}
	return nil
}

// writes are changes of what is another's, each by itself.
func (l *liar) writes(api *client.Client) {
	v, me, other := l.victim, l.cn, cnID(l.other)
	for _, o := range []log.Op{
		op(log.Update, log.KindVM, v.id.String(), `{"state":"stopped"}`),
		op(log.Update, log.KindVM, v.id.String(), `{"server_uuid":%q}`, me),
		op(log.Update, log.KindNIC, v.mac.String(), `{"cn_uuid":%q}`, me),
		op(log.Update, log.KindNIC, v.mac.String(), `{"state":"stopped"}`),
		op(log.Update, log.KindServer, other.String(), `{"underlay_mtu":1400}`),
		op(log.Update, log.KindNIC, log.MAC{0x90, 0xb8, 0xd0, 0, 1, byte(l.other + 1)}.String(), `{"cn_uuid":%q}`, me),
		op(log.Update, log.KindNetwork, networkID(0), `{"description":"a lie"}`),
		op(log.Create, log.KindNICTag, "", `{"name":"lie%d"}`, l.rnd.Uint32()),
		op(log.Create, log.KindNIC, "", `{"mac":%q,"belongs_to_type":"zone","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q,"network_uuid":%q}`,
			log.MAC{0x90, 0xb8, 0xd2, byte(l.rnd.Uint32()), byte(l.rnd.Uint32()), byte(l.i)}, v.id, owner, me, networkID(1)),
		{Action: log.Delete, Kind: log.KindNIC, ID: v.mac.String()},
		{Action: log.Delete, Kind: log.KindVM, ID: v.id.String()},
		{Action: log.Delete, Kind: log.KindServer, ID: other.String()},
	} {
		ctx, cancel := context.WithTimeout(l.w.ctx, 3*time.Second)
		e := l.w.write(ctx, l.name, oracle.SurfaceLie, api.Submit, &log.Change{ID: changeID(l.rnd), Ops: []log.Op{o}})
		cancel()
		if e.Outcome == seen.Refused {
			l.w.count(coverage.LieRefused, 1)
		}
		if e.Outcome == seen.Unknown { // the server does not answer
			return
		}
	}
}

// reads ask for what another node has, and for the whole log.
func (l *liar) reads(api *client.Client) {
	ctx, cancel := context.WithTimeout(l.w.ctx, 4*time.Second)
	defer cancel()
	if o, err := api.Get(ctx, "/vms/"+l.victim.id.String(), nil); err == nil {
		l.w.fail("%s was told at %v of a VM of another node: %v", l.name, l.w.seen.Since(time.Now()), o)
	}
	for line, err := range api.Log(ctx, client.LogQuery{}) {
		if err != nil {
			break
		}
		l.heard(seen.Item{Seq: line.Seq, Chain: line.Chain, Line: fmt.Sprint(line)})
	}
}

// heard records an entry that the liar got, as a stream of its own: it is judged whether it
// concerns the node, and not what is missing.
func (l *liar) heard(e seen.Item) {
	l.items++
	e.Stream = fmt.Sprintf("lie %s %v %d", l.name, l.w.seen.Since(time.Now()), l.items)
	l.w.seen.Add(l.name, seen.StreamBegun{Stream: e.Stream, Kind: "entries", Filter: "cn=" + l.cn.String()})
	l.w.seen.Add(l.name, e)
}

// follow opens a feed as a node, and says that it holds what is others'; future: it says too that
// it has programmed what is not written yet.
func (l *liar) follow(api *client.Client, server *server, cn log.UUID, future bool) {
	ctx, cancel := context.WithTimeout(l.w.ctx, 3*time.Second)
	defer cancel()
	raw, err := api.Feed(ctx, server.url())
	if err != nil {
		return // there is no such server now
	}
	hello := &feed.Hello{CN: cn, Incarnation: uint64(time.Now().UnixMilli()), Session: uint64(1 + l.items)}
	if store := server.store(); store != nil {
		hello.Cursor = store.Head()
	}
	for _, scope := range []log.Scope{log.CNScope(l.cn), log.CNScope(cnID(l.other)), log.VNetScope(0), log.VNetScope(1), log.VNetScope(2), log.VNetScope(3)} {
		hello.Scopes = append(hello.Scopes, feed.HeldScope{Scope: scope, AsOf: hello.Cursor.Seq})
	}
	h := &hears{l: l, cn: cn, server: server, conn: feed.NewConn(raw), future: future}
	h.conn.Again(feed.Again{At: hello.Cursor.Seq, Scope: log.CNScope(cnID(l.other))})
	err = h.conn.Follow(ctx, hello, h)
	l.w.seen.Add(l.name, seen.StreamEnded{Stream: "lie " + l.name, Err: fmt.Sprint(err)})
	if errors.Is(err, feed.ErrDrained) {
		l.w.count(coverage.LieRefused, 1)
	}
}

// hears is what a liar's feed hears. It implements feed.Handler.
type hears struct {
	l      *liar
	cn     log.UUID
	server *server
	conn   *feed.Conn
	future bool
}

// Welcome implements feed.Handler.
func (h *hears) Welcome(m *feed.Welcome) error {
	if h.cn != h.l.cn {
		h.l.w.fail("%s follows the feed of %s at %v", h.l.name, h.cn, h.l.w.seen.Since(time.Now()))
	}
	if h.future && h.l.rnd.IntN(2) == 0 {
		h.nonsense(m.Head)
	} else if h.future {
		at := m.Head
		at.Seq += 1000
		h.conn.Watermark(feed.Watermark{Applied: at.Seq, Programmed: at.Seq, Reached: at.Seq, Log: m.Head})
		h.l.w.zombies.Go(func() { h.believed(m.Head.Seq) })
	}
	return nil
}

// nonsense says what is not so of what the node has, with numbers as large as they can be, that
// another node's objects are missing here, and that each scope of another differs.
func (h *hears) nonsense(head log.Cursor) {
	const most = 1<<32 - 1
	h.conn.Watermark(feed.Watermark{
		Applied: head.Seq, Programmed: head.Seq, Reached: head.Seq, Log: head, Checked: head.Seq + 1000,
		Objects: most, Links: most, Neighbours: most, FDB: most, Failing: most, Healed: 1<<64 - 1, Mismatches: most, Resets: most,
		LastReset: feed.ResetOtherLog, Drift: strings.Repeat("a lie\n", 10_000), List: 1, Listed: true,
		Waits: []feed.Wait{{Kind: feed.WaitNIC, VNet: 1000, NIC: h.l.victim.mac, VM: h.l.victim.id, Why: "a lie"}},
	})
	for i := range uint32(50) {
		h.conn.Again(feed.Again{At: head.Seq + log.Seq(i), Scope: log.VNetScope(1000 + i%2)})
		h.conn.Again(feed.Again{At: head.Seq, Scope: log.CNScope(cnID(h.l.other))})
	}
	h.l.w.zombies.Go(func() { h.pretended() })
}

// pretended looks whether a server has a session of another node with what the liar said.
func (h *hears) pretended() {
	time.Sleep(time.Second)
	api, err := h.l.w.client(h.l.w.net.Host("operator"), h.server.name, 0)
	if err != nil {
		return
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(h.l.w.ctx, 3*time.Second)
	defer cancel()
	sessions, err := api.Sessions(ctx, h.server.url())
	for _, s := range sessions {
		if err == nil && s.CN != h.l.cn && s.Links == 1<<32-1 {
			h.l.w.fail("%s lied, and %s has it of %s", h.l.name, h.server.name, s.CN)
		}
	}
	h.l.w.count("lies of nonsense", 1)
}

// believed looks whether the server counts what was said.
func (h *hears) believed(head log.Seq) {
	time.Sleep(time.Second)
	api, err := h.l.w.client(h.l.w.net.Host("operator"), h.server.name, 0)
	if err != nil {
		return
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(h.l.w.ctx, 3*time.Second)
	defer cancel()
	sessions, err := api.Sessions(ctx, h.server.url())
	for _, s := range sessions {
		if err == nil && s.CN == h.cn && s.Programmed > head+500 {
			h.l.w.fail("%s says that it has programmed %d, and %s believes it, whose head was %d", h.l.name, s.Programmed, h.server.name, head)
		}
	}
}

// Reset implements feed.Handler.
func (h *hears) Reset(*feed.Reset) error { return nil }

// Entry implements feed.Handler.
func (h *hears) Entry(m *feed.Entry) error {
	h.l.heard(seen.Item{Seq: m.Seq, Chain: m.Chain})
	return nil
}

// Object implements feed.Handler.
func (h *hears) Object(*feed.Object) error { return nil }

// ScopeBegin implements feed.Handler.
func (h *hears) ScopeBegin(m *feed.ScopeBegin) error {
	if m.Scope.Type == log.ScopeCN && m.Scope.ID != h.l.cn {
		h.l.w.fail("%s is sent the scope %v at %v", h.l.name, m.Scope, h.l.w.seen.Since(time.Now()))
	}
	return nil
}

// ScopeEnd implements feed.Handler.
func (h *hears) ScopeEnd(*feed.ScopeEnd) error { return nil }

// ScopeDropped implements feed.Handler.
func (h *hears) ScopeDropped(*feed.ScopeDropped) error { return nil }

// Bookmark implements feed.Handler.
func (h *hears) Bookmark(*feed.Bookmark) error { return nil }

// absent says which nodes the log does not have as running, whose agents run.
func absent(nodes []*node, store *raftstore.Store) (why []string) {
	store.View(func(v raftstore.View) {
		for _, n := range nodes {
			if r, ok := v.State.Get(log.KindServer, n.cn.String()); ok && r.Object.(*log.Server).Status != "running" {
				why = append(why, fmt.Sprintf("%s is %q in the log", n.name, r.Object.(*log.Server).Status))
			}
		}
	})
	return why
}
