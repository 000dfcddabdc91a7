package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/log"
)

const (
	registers = 12 // VMs, whose alias is the register's value
	writers   = 6
	readers   = 4
	// shortRead and longRead bound how long a client waits for a read: some wait
	// until a paused server goes on, some have given up by then.
	shortRead, longRead = 200 * time.Millisecond, 1700 * time.Millisecond
	// finalRead bounds a read after all was healed.
	finalRead = 10 * time.Second
)

// action is what a client asked for.
type action int

const (
	actWrite   action = iota // POST /changes
	actSwap                  // PUT with If-Match
	actRead                  // GET ?consistent
	actGlimpse               // GET, as far as that server is
)

func (a action) String() string {
	return [...]string{"write", "swap", "read", "glimpse"}[a]
}

// outcome is what a client knows of it.
type outcome int

const (
	done    outcome = iota
	refused         // the revision was another
	unknown         // it may have taken effect, or may yet
)

// op is one operation of one client.
type op struct {
	client    int
	server    string // asked first
	key       int
	action    action
	value     string // written or read
	revision  uint64 // asked for or read
	tag       string // of that revision
	outcome   outcome
	change    log.UUID // zero for a PUT
	seq       log.Seq  // of a write that was done with its seq known; the state that was read
	call, ret time.Duration
}

// String is for messages.
func (o op) String() string {
	return fmt.Sprintf("client %d at %s, register %d: %v %q, revision %d, seq %d, outcome %d, from %v to %v", o.client, o.server, o.key, o.action, o.value, o.revision, o.seq, o.outcome, o.call, o.ret)
}

// history is what all clients did.
type history struct {
	began time.Time
	mu    sync.Mutex // protects ops
	ops   []op
}

func (h *history) now() time.Duration { return time.Since(h.began) }

func (h *history) add(o op) {
	h.mu.Lock()
	h.ops = append(h.ops, o)
	h.mu.Unlock()
}

// count returns the operations that were done.
func (h *history) count(of ...action) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.ops {
		for _, a := range of {
			if o.action == a && o.outcome == done {
				n++
			}
		}
	}
	return n
}

// since reports whether an operation was done that began at or after a time.
func (h *history) since(at time.Duration, a action) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(h.ops) - 1; i >= 0 && h.ops[i].ret >= at; i-- {
		if o := h.ops[i]; o.call >= at && o.action == a && o.outcome == done {
			return true
		}
	}
	return false
}

// seen returns the revision that was read last of a register, and its tag: what a
// swap asks for. It need not be the newest; there is none before
// the first read.
func (h *history) seen(key int) (revision uint64, tag string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(h.ops) - 1; i >= 0; i-- {
		if o := h.ops[i]; o.key == key && o.action == actRead {
			return o.revision, o.tag
		}
	}
	return 0, ""
}

// workload is the clients of one schedule.
type workload struct {
	t     *testing.T
	c     *cluster
	h     *history
	ids   [registers]log.UUID
	apis  []*client.Client // of all servers, each first, and of each alone
	http  *http.Client
	names []string // of apis
}

// newWorkload makes the registers.
func newWorkload(t *testing.T, c *cluster) *workload {
	t.Helper()
	w := &workload{t: t, c: c, h: &history{began: time.Now()}, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
	t.Cleanup(w.http.CloseIdleConnections)
	var urls []string
	for _, s := range c.servers {
		urls = append(urls, s.url)
	}
	for i, s := range c.servers {
		rotated := append(append([]string{}, urls[i:]...), urls[:i]...)
		w.apis = append(w.apis, newClient(t, patientTime, rotated...), newClient(t, hastyTime, s.url))
		w.names = append(w.names, s.id+" and others", s.id)
	}
	change := &log.Change{ID: client.NewChangeID()}
	owner := client.NewChangeID()
	for i := range w.ids {
		w.ids[i] = client.NewChangeID()
		change.Ops = append(change.Ops, log.Op{
			Action: log.Create, Kind: log.KindVM, Set: []string{"alias", "owner_uuid", "state", "uuid"},
			Object: &log.VM{UUID: w.ids[i], OwnerUUID: owner, Alias: first, State: "running"},
		})
	}
	if _, err := c.api.Submit(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	w.h.began = time.Now()
	return w
}

// objects returns the ids of the registers' objects.
func (w *workload) objects() (ids []string) {
	for _, id := range w.ids {
		ids = append(ids, id.String())
	}
	return ids
}

// first is each register's value at revision 1.
const first = "first"

// run lets the clients work until ctx ends.
func (w *workload) run(ctx context.Context, seed uint64) {
	var clients sync.WaitGroup
	for i := range writers + readers {
		rng := rand.New(rand.NewPCG(seed, uint64(i)+1))
		clients.Go(func() {
			if i < writers {
				w.write(ctx, i, rng)
			} else {
				w.read(ctx, i, rng)
			}
		})
	}
	clients.Wait()
}

func readTime(rng *rand.Rand) time.Duration {
	return shortRead + time.Duration(rng.Int64N(int64(longRead-shortRead)))
}

// rest keeps ten clients from filling the machine, which the servers need.
func rest(ctx context.Context, rng *rand.Rand) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(rng.IntN(5)) * time.Millisecond):
	}
}

func (w *workload) write(ctx context.Context, number int, rng *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		key, via := rng.IntN(registers), rng.IntN(len(w.apis))
		o := op{client: number, key: key, server: w.names[via], value: fmt.Sprintf("c%d_%d", number, n)}
		if rng.IntN(10) < 6 {
			w.submit(w.apis[via], &o)
		} else {
			w.get(rng.IntN(servers), &op{client: number, key: key}, actRead, readTime(rng))
			o.revision, o.tag = w.h.seen(key)
			if o.tag == "" {
				w.submit(w.apis[via], &o)
			} else {
				w.swap(w.apis[via], &o)
			}
		}
		rest(ctx, rng)
	}
}

func (w *workload) read(ctx context.Context, number int, rng *rand.Rand) {
	for ctx.Err() == nil {
		o := op{client: number, key: rng.IntN(registers)}
		w.get(rng.IntN(servers), &o, []action{actRead, actRead, actGlimpse}[rng.IntN(3)], readTime(rng))
		rest(ctx, rng)
	}
}

// submit writes, whatever the register holds. It is not cut off when the
// workload ends: an outcome is better known.
func (w *workload) submit(api *client.Client, o *op) {
	o.action, o.change = actWrite, client.NewChangeID()
	change := &log.Change{ID: o.change, Ops: []log.Op{{
		Action: log.Update, Kind: log.KindVM, ID: w.ids[o.key].String(), Set: []string{"alias"}, Object: &log.VM{Alias: o.value},
	}}}
	o.call = w.h.now()
	result, err := api.Submit(context.Background(), change)
	o.ret, o.seq = w.h.now(), result.Last
	w.finish(o, err)
}

// swap writes if the register has the revision named.
func (w *workload) swap(api *client.Client, o *op) {
	o.action = actSwap
	body, err := json.Marshal(map[string]string{"alias": o.value})
	if err != nil {
		w.t.Error(err)
		return
	}
	o.call = w.h.now()
	_, err = api.Update(context.Background(), "/vms/"+w.ids[o.key].String(), body, o.tag)
	o.ret = w.h.now()
	w.finish(o, err)
}

// finish notes what became of a write.
func (w *workload) finish(o *op, err error) {
	var refusal *log.Refusal
	switch {
	case err == nil:
		o.outcome = done
	case errors.As(err, &refusal) && refusal.Code == log.CodePreconditionFailed && o.action == actSwap:
		o.outcome = refused
	case errors.Is(err, client.ErrUnavailable):
		o.outcome = unknown
	default:
		w.t.Errorf("%v: %v", o, err)
		return
	}
	w.h.add(*o)
}

// get reads a register at one server. A read that fails says nothing and is
// forgotten.
func (w *workload) get(server int, o *op, a action, limit time.Duration) {
	s := w.c.servers[server]
	o.action, o.server = a, s.id
	url := s.url + "/vms/" + w.ids[o.key].String()
	if a == actRead {
		url += "?consistent"
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	o.call = w.h.now()
	value, err := w.fetch(ctx, url)
	o.ret = w.h.now()
	if err != nil {
		return
	}
	o.value, o.revision, o.tag, o.seq, o.outcome = value.alias, value.revision, value.tag, value.seq, done
	w.h.add(*o)
}

// value is what a server answered, and the seq that the answer is of.
type value struct {
	alias    string
	revision uint64
	tag      string
	seq      log.Seq
}

func (w *workload) fetch(ctx context.Context, url string) (v value, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return v, err
	}
	response, err := w.http.Do(request)
	if err != nil {
		return v, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		// A server that is behind may not have the registers yet; a consistent
		// read that finds none is a lost change.
		behind := response.StatusCode == http.StatusNotFound && request.URL.RawQuery == ""
		if response.StatusCode != http.StatusServiceUnavailable && !behind {
			w.t.Errorf("GET %s: %s", url, response.Status)
		}
		return v, fmt.Errorf("GET %s: %s", url, response.Status)
	}
	var object struct {
		Alias string `json:"alias"`
	}
	if err := json.NewDecoder(response.Body).Decode(&object); err != nil {
		return v, err
	}
	tag := response.Header.Get("Etag")
	revision, _, err := log.ParseETag(tag)
	if err != nil {
		return v, err
	}
	seq, err := strconv.ParseUint(response.Header.Get(client.HeaderSeq), 10, 64)
	return value{object.Alias, uint64(revision), tag, log.Seq(seq)}, err
}

// finalReads reads every register at every server, consistently: the end of the
// history, which must be well.
func (w *workload) finalReads() {
	for key := range registers {
		for server := range servers {
			o := op{client: writers + readers, key: key}
			before := w.h.count(actRead)
			w.get(server, &o, actRead, finalRead)
			if w.h.count(actRead) != before+1 {
				w.t.Errorf("%s does not answer a consistent read after all was healed", w.c.servers[server].id)
			}
		}
	}
}
