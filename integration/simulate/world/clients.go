package world

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/integration/simulate/network"
	"rutter/integration/simulate/seen"
	"rutter/log"
)

// client returns a client on a host, of one server or, if server is "", of all, with the
// first-th first.
func (w *world) client(h *network.Host, server string, first int) (*client.Client, error) {
	return w.clientOf(h, server, first, w.certificates.operator(), 0)
}

// waitingClient is client, whose writes wait so long for the compute nodes.
func (w *world) waitingClient(h *network.Host, server string, first int, await time.Duration) (*client.Client, error) {
	return w.clientOf(h, server, first, w.certificates.operator(), await)
}

// clientOf is waitingClient with the certificate of k; nil: without TLS.
func (w *world) clientOf(h *network.Host, server string, first int, k *tlsgate.Keeper, await time.Duration) (*client.Client, error) {
	return client.New(client.Config{
		Servers: urls(w.servers, server, first), Await: await, Timeout: 15 * time.Second, AttemptTimeout: 3 * time.Second, Silence: 20 * time.Second,
		Dial: hostDialer(h), DialTLS: toServers(k, hostDialer(h)), Jitter: w.jitter("client " + h.Address() + server),
	})
}

// urls are those of a server or, if name is "", of all, with the first-th first.
func urls(servers []*server, name string, first int) (urls []string) {
	for i := range servers {
		s := servers[(i+first)%len(servers)]
		if name == "" || name == s.name {
			urls = append(urls, s.url())
		}
	}
	return urls
}

// named is the name of the server that has a URL; "": none has.
func named(servers []*server, url string) string {
	for _, s := range servers {
		if s.url() == url {
			return s.name
		}
	}
	return ""
}

// rand is a source of random choices of one part of the world.
func (w *world) rand(part string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(part))
	return rand.New(rand.NewPCG(w.h.Seed, h.Sum64()))
}

// jitter draws durations for a part, from any goroutine.
func (w *world) jitter(part string) func(time.Duration) time.Duration {
	var mu sync.Mutex
	rnd := w.rand("jitter " + part)
	return func(d time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rnd.Int64N(int64(d) + 1))
	}
}

// share makes a source of durations one of numbers in [0, 1).
func share(draw func(time.Duration) time.Duration) func() float64 {
	return func() float64 { return float64(draw(1<<53-1)) / (1 << 53) }
}

// model is what writers know of objects, so that most changes make sense. It may be wrong.
type model struct {
	mu   sync.Mutex
	vms  []vm
	next uint32 // of MACs and names
}

type vm struct {
	id  log.UUID
	mac log.MAC
	cn  int
}

// uuid is a version 4 UUID of rnd.
func uuid(rnd *rand.Rand) (id log.UUID) {
	binary.BigEndian.PutUint64(id[:], rnd.Uint64())
	binary.BigEndian.PutUint64(id[8:], rnd.Uint64())
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

// changeID is a version 7 UUID of now.
func changeID(rnd *rand.Rand) log.UUID {
	return changeIDAt(rnd, time.Now())
}

// changeIDAt is a version 7 UUID of a time.
func changeIDAt(rnd *rand.Rand, at time.Time) log.UUID {
	id := uuid(rnd)
	ms := uint64(at.UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6] = id[6]&0x0f | 0x70
	return id
}

// op is an operation from the JSON form of an object.
func op(action log.Action, kind log.Kind, id, format string, args ...any) log.Op {
	o, set, err := log.ParseObject(kind, fmt.Appendf(nil, format, args...))
	if err != nil {
		panic(fmt.Sprintf(format, args...) + ": " + err.Error())
	}
	return log.Op{Action: action, Kind: kind, ID: id, Set: set, Object: o}
}

// owner owns all that is made.
var owner = log.UUID{0: 0x93, 6: 0x40, 8: 0x80, 15: 0x53}

// vmsAtOnce is how many VMs one change makes at the beginning.
const vmsAtOnce = 20

// Objects that each world has.
const (
	underlayID = "0e70de36-a40b-4ac0-9429-819f5ff82001"
	registers  = 4 // networks whose description is a register
)

func networkID(i int) string { return fmt.Sprintf("0e70de36-a40b-4ac0-9429-819f5ff8201%d", i) }

// founding are the changes with which each world begins.
func (w *world) founding() (all [][]log.Op) {
	ops := []log.Op{
		op(log.Create, log.KindNICTag, "", `{"name":"sdc_underlay","mtu":1600}`),
		op(log.Create, log.KindNICTag, "", `{"name":"sdc_overlay","mtu":1500}`),
		op(log.Create, log.KindNetwork, "", `{"uuid":%q,"name":"underlay","nic_tag":"sdc_underlay","vlan_id":0,"subnet":"192.168.0.0/16","provision_start_ip":"192.168.1.1","provision_end_ip":"192.168.250.250","mtu":1600,"owner_uuids":["00000000-0000-4000-8000-000000000001"]}`, underlayID),
	}
	for i := range registers {
		ops = append(ops, op(log.Create, log.KindNetwork, "",
			`{"uuid":%q,"name":"net%d","fabric":true,"vnet_id":%d,"vlan_id":%d,"nic_tag":"sdc_overlay","subnet":"10.%d.0.0/16","provision_start_ip":"10.%d.0.5","provision_end_ip":"10.%d.250.250","gateway":"10.%d.0.1","resolvers":["8.8.8.8"],"mtu":1400,"owner_uuids":[%q]}`,
			networkID(i), i, 1000+i/2, 4+i%2, 20+i, 20+i, 20+i, 20+i, owner))
	}
	all = append(all, append(ops, makeOwnNetwork()))
	for i := range w.h.Agents {
		cn := cnID(i)
		all = append(all, []log.Op{
			op(log.Create, log.KindServer, "", `{"uuid":%q,"hostname":"cn%d","setup":true}`, cn, i+1),
			op(log.Create, log.KindNIC, "", `{"mac":%q,"belongs_to_type":"server","belongs_to_uuid":%q,"owner_uuid":"00000000-0000-4000-8000-000000000001","cn_uuid":%q,"network_uuid":%q,"ip":"192.168.1.%d","underlay":true,"primary":true,"state":"running"}`,
				log.MAC{0x90, 0xb8, 0xd0, 0, 1, byte(i + 1)}, cn, cn, underlayID, i+1),
		})
	}
	rnd := w.rand("founding")
	for i := range w.h.Agents {
		all = append(all, w.model.create(rnd, i))
	}
	still := model{next: 1 << 16} // of VMs that no client knows
	for begun := 0; begun < w.h.VMs; begun += vmsAtOnce {
		var ops []log.Op
		for i := range min(vmsAtOnce, w.h.VMs-begun) {
			ops = append(ops, still.createOn(rnd, 0, i%2)...)
		}
		all = append(all, ops)
	}
	return all
}

// create makes a VM with a NIC on a node, on any network.
func (m *model) create(rnd *rand.Rand, cn int) []log.Op {
	return m.createOn(rnd, cn, rnd.IntN(registers))
}

// createOn makes a VM with a NIC on a node and a network.
func (m *model) createOn(rnd *rand.Rand, cn, network int) []log.Op {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next++
	v := vm{id: uuid(rnd), mac: log.MAC{0x90, 0xb8, 0xd1, byte(m.next >> 16), byte(m.next >> 8), byte(m.next)}, cn: cn}
	m.vms = append(m.vms, v)
	return []log.Op{
		op(log.Create, log.KindVM, "", `{"uuid":%q,"alias":"vm%d","owner_uuid":%q,"brand":"joyent","state":"running","server_uuid":%q}`, v.id, m.next, owner, cnID(cn)),
		op(log.Create, log.KindNIC, "", `{"mac":%q,"belongs_to_type":"zone","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q,"network_uuid":%q,"state":"running","primary":true}`,
			v.mac, v.id, owner, cnID(cn), networkID(network)),
	}
}

// pick takes a VM; remove takes it out of the model.
func (m *model) pick(rnd *rand.Rand, remove bool) (v vm, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.vms) == 0 {
		return v, false
	}
	i := rnd.IntN(len(m.vms))
	v = m.vms[i]
	if remove {
		m.vms[i] = m.vms[len(m.vms)-1]
		m.vms = m.vms[:len(m.vms)-1]
	}
	return v, true
}

// more reports whether clients know more than n VMs.
func (m *model) more(n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.vms) > n
}

// ops draws the operations of one change.
func (w *world) ops(rnd *rand.Rand, who string, n int) []log.Op {
	m := &w.model
	k := rnd.IntN(100)
	if k < 25 && w.h.VMs > 0 && m.more(w.h.Agents) {
		k += 25 // with few VMs, nodes begin and end to want scopes
	}
	switch {
	case k < 25:
		return m.create(rnd, rnd.IntN(w.h.Agents))
	case k < 40:
		if v, ok := m.pick(rnd, len(m.vms) > w.h.Agents); ok {
			return []log.Op{{Action: log.Delete, Kind: log.KindNIC, ID: v.mac.String()}, {Action: log.Delete, Kind: log.KindVM, ID: v.id.String()}}
		}
	case k < 55: // it moves
		if v, ok := m.pick(rnd, false); ok {
			to := cnID(rnd.IntN(w.h.Agents))
			return []log.Op{op(log.Update, log.KindVM, v.id.String(), `{"server_uuid":%q}`, to), op(log.Update, log.KindNIC, v.mac.String(), `{"cn_uuid":%q}`, to)}
		}
	case k < 65:
		if v, ok := m.pick(rnd, false); ok {
			return []log.Op{op(log.Update, log.KindNIC, v.mac.String(), `{"state":%q}`, []string{"running", "stopped"}[rnd.IntN(2)])}
		}
	case k < 70:
		return []log.Op{op(log.Update, log.KindNetwork, networkID(rnd.IntN(registers)), `{"mtu":%d}`, 1300+10*rnd.IntN(15))}
	case k < 75:
		return []log.Op{op(log.Create, log.KindNICTag, "", `{"name":"t%s_%d"}`, who, n)}
	}
	return []log.Op{op(log.Update, log.KindNetwork, networkID(rnd.IntN(registers)), `{"description":"%s-%d"}`, who, n)}
}

// submit is how a surface takes a change.
type submit func(ctx context.Context, c *log.Change) (log.Result, error)

// write sends a change once by a surface, and records what came of it.
func (w *world) write(ctx context.Context, who, surface string, send submit, c *log.Change) seen.Write {
	w.seen.Add(who, seen.WriteBegun{Surface: surface, Change: *c})
	e := seen.Write{Surface: surface, Change: *c, From: w.seen.Since(time.Now())}
	result, err := send(ctx, c)
	e.Until = w.seen.Since(time.Now())
	e.Outcome, e.Result = seen.Accepted, result
	var refusal *log.Refusal
	pending := (*client.PendingError)(nil)
	switch {
	case err == nil:
	case errors.As(err, &refusal) && !errors.Is(err, client.ErrUnavailable):
		e.Outcome, e.Refusal = seen.Refused, refusal
	case errors.As(err, &pending):
		e.Outcome, e.Err = seen.Unknown, err.Error()
	case (errors.Is(err, client.ErrOverloaded) || errors.Is(err, log.ErrNoRoom)) && !errors.Is(err, client.ErrUnavailable):
		e.Outcome = seen.NotTaken
	default:
		e.Outcome = seen.Unknown
	}
	if err != nil {
		e.Err = err.Error()
	}
	w.seen.Add(who, e)
	w.count("write "+string(e.Outcome), 1)
	return e
}

// writer writes until ctx ends. A write whose outcome is unknown is sent again with its id.
func (w *world) writer(ctx context.Context, i int) {
	who := fmt.Sprintf("c%d", i+1)
	rnd := w.rand(who)
	api, err := w.client(w.net.Host(who), "", i)
	if err != nil {
		w.fail("client: %v", err)
		return
	}
	defer api.Close()
	surface, send := "changes", submit(api.Submit)
	if i%2 == 1 {
		stream := api.NewStream()
		surface, send = "stream", stream.Submit
		life, end := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			_ = stream.Run(life)
			close(ended)
		}()
		defer func() {
			end()
			<-ended
		}()
	}
	old := &late{w: w, rnd: w.rand("late " + who)}
	for n := 0; ctx.Err() == nil; n++ {
		c := &log.Change{ID: changeID(rnd), Ops: w.ops(rnd, who, n)}
		old.note(c)
		for try := 0; ; try++ {
			within, cancel := context.WithTimeout(w.ctx, 10*time.Second)
			e := w.write(within, who, surface, send, c)
			cancel()
			again := e.Outcome == seen.Unknown || e.Outcome == seen.NotTaken || e.Outcome == seen.Accepted && rnd.IntN(20) == 0
			if !again || try == 3 {
				break
			}
			pause(w.ctx, 200*time.Millisecond)
		}
		old.again(who, surface, send)
		pause(ctx, time.Duration(rnd.Int64N(int64(w.think()))))
	}
}

const (
	// usualThink is the longest pause of a client between two requests.
	usualThink = time.Second
	// busyThink is it of clients that write or read much.
	busyThink = 300 * time.Millisecond
)

// think is the longest pause of a writer between two writes, and twice that of a reader.
func (w *world) think() time.Duration {
	if w.h.Busy {
		return busyThink
	}
	return usualThink
}

// pause waits, at most until ctx ends.
func pause(ctx context.Context, d time.Duration) { pauseUnless(ctx, nil, d) }

// pauseUnless waits, at most until ctx ends or there is a value.
func pauseUnless(ctx context.Context, turned <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-turned:
	case <-timer.C:
	}
}
