package world

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"time"

	"rutter/agent"
	compute "rutter/cmd/rutter/node"
	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/varp"
)

const (
	svpPort = 1296
	// askedNodes bounds the nodes whose SVP is asked, each by a client of its own.
	askedNodes = 5
	// askedAddresses is how many of the first addresses of a network are asked for.
	askedAddresses = 40
)

// answerSVP serves the SVP of a node's agent to programs of that node until ctx ends.
func (n *node) answerSVP(ctx context.Context, a *agent.Agent) {
	server, err := compute.NewSVP(a, 0, n.w.logger(n.name))
	if err != nil {
		n.w.fail("SVP of %s: %v", n.name, err)
		return
	}
	listener, err := n.host.Listen(":" + strconv.Itoa(svpPort))
	if err != nil { // its process was killed
		return
	}
	if err := server.Run(ctx, listener); err != nil && ctx.Err() == nil {
		n.w.fail("SVP of %s: %v", n.name, err)
	}
}

// asker asks the SVP of compute nodes where MACs and addresses are, as a program on them.
type asker struct {
	w       *world
	who     string
	rnd     *rand.Rand
	clients map[*node]*varp.Client
}

func newAsker(w *world, i int) *asker {
	who := fmt.Sprintf("l%d", i+1)
	return &asker{w: w, who: who, rnd: w.rand(who), clients: map[*node]*varp.Client{}}
}

// run asks until ctx ends.
func (q *asker) run(ctx context.Context) {
	defer q.close()
	for ctx.Err() == nil {
		n := q.w.nodes[q.rnd.IntN(min(len(q.w.nodes), askedNodes))]
		q.ask(n)
		pause(ctx, time.Duration(q.rnd.Int64N(int64(q.w.think()))))
	}
}

func (q *asker) close() {
	for _, c := range q.clients {
		_ = c.Close()
	}
}

func (q *asker) client(n *node) *varp.Client {
	if c := q.clients[n]; c != nil {
		return c
	}
	c, err := varp.NewClient(varp.ClientConfig{Servers: []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(svpPort))}, Dial: n.host.Dial})
	if err != nil {
		panic(err) // the configuration is the same for all
	}
	q.clients[n] = c
	return c
}

// question is what is asked: of a MAC, or else of an address.
type question struct {
	vnet uint32
	mac  *log.MAC
	ip   netip.Addr
}

// draw chooses a MAC that there is or was, or an address that may be given. Most are asked of
// their own vnet.
func (q *asker) draw() question {
	i := q.rnd.IntN(registers)
	k := question{vnet: vnetOf(i), ip: netip.AddrFrom4([4]byte{10, byte(20 + i), 0, byte(5 + q.rnd.IntN(askedAddresses))})}
	if q.rnd.IntN(4) == 0 {
		k.vnet = vnetOf(q.rnd.IntN(registers))
	}
	if v, ok := q.w.model.pick(q.rnd, false); ok && q.rnd.IntN(2) == 0 {
		k.mac = &v.mac
	}
	return k
}

// vnetOf is the vnet of a network of the world.
func vnetOf(network int) uint32 { return uint32(1000 + network/2) }

// ask asks a node once. If its agent's process is another one afterwards, or does not run, the
// answer says nothing.
func (q *asker) ask(n *node) {
	a := n.running()
	if a == nil {
		return
	}
	k := q.draw()
	down := q.allDown()
	before := a.Status()
	e := seen.Lookup{Node: n.name, CN: n.cn, VNet: k.vnet, After: before.Cursor, From: q.w.seen.Since(time.Now())}
	var err error
	e.Key, e.Answer, err = q.lookup(n, k)
	e.Until = q.w.seen.Since(time.Now())
	after := a.Status()
	if n.running() != a {
		q.w.count("lookups of an agent that ended", 1)
		return
	}
	e.Whole = holds(&before, k.vnet) && holds(&after, k.vnet)
	switch {
	case errors.Is(err, varp.ErrNotFound):
		q.w.count("lookups not found", 1)
	case err != nil:
		e.Err = err.Error()
		q.w.count("lookups without answer", 1)
	default:
		q.w.count("lookups found", 1)
	}
	if e.Err == "" && down && q.allDown() {
		q.w.count(coverage.SVPWhileDown, 1)
	}
	q.w.seen.Add(q.who, e)
}

// lookup sends the question.
func (q *asker) lookup(n *node, k question) (key, answer string, err error) {
	ctx, cancel := context.WithTimeout(q.w.ctx, 5*time.Second)
	defer cancel()
	if k.mac != nil {
		at, err := q.client(n).VL2(ctx, k.vnet, *k.mac)
		if err == nil {
			answer = seen.LookupAnswer(nil, at.Addr, at.Port)
		}
		return k.mac.String(), answer, err
	}
	mac, at, err := q.client(n).VL3(ctx, k.vnet, k.ip)
	if err == nil {
		answer = seen.LookupAnswer(&mac, at.Addr, at.Port)
	}
	return k.ip.String(), answer, err
}

// allDown is whether no server runs.
func (q *asker) allDown() bool {
	for _, s := range q.w.servers {
		if s.store() != nil {
			return false
		}
	}
	return true
}

// holds is whether a node holds all of a vnet.
func holds(st *agent.Status, vnet uint32) bool {
	for _, s := range st.Scopes {
		if s.Scope == log.VNetScope(vnet) {
			return s.Complete
		}
	}
	return false
}
