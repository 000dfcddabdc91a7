package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
	"rutter/projections/rules"
)

// pastLog makes the entries of a log by changes as clients send them.
type pastLog struct {
	t       rapid.TB
	rng     *rand.Rand
	state   *projections.State
	hash    log.Hash
	entries []log.Entry
	n       uint64
}

const (
	historyCNs  = 5
	historyNets = 6
)

func newPastLog(t rapid.TB, seed uint64) *pastLog {
	h := &pastLog{t: t, rng: rand.New(rand.NewPCG(seed, 1)), state: projections.NewState()}
	h.do(`create nic_tag`, `{"name":"sdc_underlay","mtu":9000}`)
	h.do(`create network`, `{"uuid":"`+uuidOf(200)+`","name":"underlay","nic_tag":"sdc_underlay","vlan_id":0,"subnet":"10.99.0.0/16","provision_start_ip":"10.99.0.2","provision_end_ip":"10.99.255.200"}`)
	for i := range historyNets {
		h.do(`create network`, fmt.Sprintf(`{"uuid":"%s","name":"f%d","fabric":true,"nic_tag":"sdc_underlay","vnet_id":%d,"vlan_id":%d,"subnet":"10.%d.0.0/16","provision_start_ip":"10.%d.0.2","provision_end_ip":"10.%d.255.200","owner_uuids":["%s"]}`,
			uuidOf(300+i), i, 100+i/2, 2+i, i+1, i+1, i+1, uuidOf(900+i/2)))
	}
	for i := range historyCNs {
		h.do(`create server`, fmt.Sprintf(`{"uuid":"%s","hostname":"cn%d","status":"running"}`, uuidOf(100+i), i))
	}
	return h
}

func uuidOf(n int) string {
	u := log.UUID{0: 7, 6: 0x40, 8: 0x80}
	u[14], u[15] = byte(n>>8), byte(n)
	return u.String()
}

// do makes a change, and reports whether it was accepted.
func (h *pastLog) do(what, object string) bool {
	h.t.Helper()
	var action, kind, id string
	_, _ = fmt.Sscanf(what+" -", "%s %s %s", &action, &kind, &id)
	op := log.Op{}
	var err error
	if op.Action, err = log.ParseAction(action); err != nil {
		h.t.Fatal(err)
	}
	if op.Kind, err = log.ParseKind(kind); err != nil {
		h.t.Fatal(err)
	}
	if id != "-" {
		op.ID = id
	}
	if object != "" {
		if op.Object, op.Set, err = log.ParseObject(op.Kind, []byte(object)); err != nil {
			h.t.Fatalf("%s %s: %v", what, object, err)
		}
	}
	h.n++
	c := &log.Change{ID: log.UUID{0: byte(h.n >> 8), 1: byte(h.n), 6: 0x70, 8: 0x80, 15: 1}, Actor: "test", Time: log.Time(h.n) * 1e9, Seed: h.n, Ops: []log.Op{op}}
	events, result := rules.Decide(h.state, c)
	if result.Refusal != nil {
		return false
	}
	encoder := log.NewEncoder()
	for _, e := range events {
		raw, err := encoder.Event(e)
		if err != nil {
			h.t.Fatal(err)
		}
		seq := log.Seq(len(h.entries) + 1)
		h.hash = h.hash.Next(seq, raw)
		h.entries = append(h.entries, log.Entry{Seq: seq, Hash: h.hash, Bytes: raw})
		if _, err := h.state.Apply(seq, e); err != nil {
			h.t.Fatal(err)
		}
	}
	return true
}

// step makes one random change.
func (h *pastLog) step() {
	cn, net := uuidOf(100+h.rng.IntN(historyCNs)), uuidOf(300+h.rng.IntN(historyNets))
	vm := uuidOf(1000 + h.rng.IntN(40))
	mac := fmt.Sprintf("90:b8:d0:00:00:%02x", h.rng.IntN(120))
	switch h.rng.IntN(12) {
	case 0, 1, 2:
		h.do("create nic", fmt.Sprintf(`{"mac":"%s","network_uuid":"%s","belongs_to_uuid":"%s","belongs_to_type":"zone","owner_uuid":"%s","cn_uuid":"%s","state":"running"}`, mac, net, vm, uuidOf(900+h.rng.IntN(3)), cn))
	case 3:
		h.do("create nic", fmt.Sprintf(`{"mac":"90:b8:d1:00:00:%02x","network_uuid":"%s","belongs_to_uuid":"%s","belongs_to_type":"server","owner_uuid":"%s","underlay":true,"state":"running"}`, h.rng.IntN(10), uuidOf(200), cn, uuidOf(1)))
	case 4, 5:
		h.do("update nic "+mac, fmt.Sprintf(`{"cn_uuid":"%s"}`, cn))
	case 6:
		h.do("delete nic "+mac, "")
	case 7:
		h.do(fmt.Sprintf("delete nic 90:b8:d1:00:00:%02x", h.rng.IntN(10)), "")
	case 8:
		h.do("create vm", fmt.Sprintf(`{"uuid":"%s","alias":"a","owner_uuid":"%s","brand":"lx","state":"running","server_uuid":"%s"}`, vm, uuidOf(900), cn))
	case 9:
		h.do("update vm "+vm, fmt.Sprintf(`{"server_uuid":"%s"}`, cn))
	case 10:
		h.do("delete vm "+vm, "")
	case 11:
		h.do("update network "+net, fmt.Sprintf(`{"name":"n%d"}`, h.n))
	}
}

// folder writes the entries after a floor into a folder.
func (h *pastLog) folder(dir string, floor log.Seq, every log.Seq) *Folder {
	h.t.Helper()
	start := FolderStart{Cluster: log.UUID{15: 1}, Floor: floor}
	if floor > 0 {
		start.Hash, start.State = h.entries[floor-1].Hash, h.at(floor)
	}
	w, err := CreateFolder(dir, start)
	if err != nil {
		h.t.Fatal(err)
	}
	w.every = every
	for _, e := range h.entries[floor:] {
		if err := w.Append(e); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		h.t.Fatal(err)
	}
	f, err := OpenFolder(dir)
	if err != nil {
		h.t.Fatal(err)
	}
	return f
}

// at folds from the beginning.
func (h *pastLog) at(seq log.Seq) *projections.State {
	state := projections.NewState()
	for _, entry := range h.entries[:seq] {
		e, err := entry.Event()
		if err == nil {
			_, err = state.Apply(entry.Seq, e)
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
	return state
}

// TestPastIsTheFold: whatever is asked of whatever past, whole or in part, is
// what the fold from the beginning says, with checkpoints anywhere.
func TestPastIsTheFold(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newPastLog(t, rapid.Uint64().Draw(t, "seed"))
		for range rapid.IntRange(20, 400).Draw(t, "changes") {
			h.step()
		}
		head := log.Seq(len(h.entries))
		floor := log.Seq(0)
		if rapid.Bool().Draw(t, "compacted") {
			floor = log.Seq(rapid.Uint64Range(0, uint64(head)).Draw(t, "floor"))
		}
		dir, err := os.MkdirTemp("", "past-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		f := h.folder(dir, floor, log.Seq(rapid.IntRange(5, 500).Draw(t, "every")))
		defer f.Close()
		for range 3 {
			checkPast(t, h, f, log.Seq(rapid.Uint64Range(uint64(floor), uint64(head)).Draw(t, "seq")))
		}
		v, err := f.Verify(context.Background(), nil)
		if err != nil || len(v.Problems) > 0 {
			t.Fatalf("verify: %v, %+v", err, v.Problems)
		}
	})
}

func checkPast(t rapid.TB, h *pastLog, f *Folder, seq log.Seq) {
	t.Helper()
	ctx := context.Background()
	want := h.at(seq)
	whole, err := f.StateAt(ctx, seq)
	if err != nil || !bytes.Equal(whole.Dump(), want.Dump()) {
		t.Fatalf("the state at %d: %v\n%s\nwant\n%s", seq, err, whole.Dump(), want.Dump())
	}
	checkObjects(t, h, f, seq, want)
	for i := range historyCNs {
		cn, _ := log.ParseUUID(uuidOf(100 + i))
		part, err := f.PartAt(ctx, Part{CNs: []log.UUID{cn}}, seq)
		if err != nil {
			t.Fatalf("CN %s at %d: %v", cn, seq, err)
		}
		if got, want := desired.Of(part, cn), desired.Of(want, cn); !reflect.DeepEqual(got, want) {
			t.Fatalf("links of CN %s at %d:\n%+v\nwant\n%+v", cn, seq, got, want)
		}
		checkScopes(t, part, want, want.Interest(cn), seq)
		if part.Time() != want.Time() {
			t.Fatalf("time at %d: %d, want %d", seq, part.Time(), want.Time())
		}
	}
	for i := range historyNets / 2 {
		vnet := uint32(100 + i)
		part, err := f.PartAt(ctx, Part{VNets: []uint32{vnet}}, seq)
		if err != nil {
			t.Fatalf("vnet %d at %d: %v", vnet, seq, err)
		}
		checkScopes(t, part, want, []log.Scope{log.VNetScope(vnet)}, seq)
		for r := range want.NICsOnVNet(vnet) {
			ip := r.Object.(*log.NIC).IP
			mac, at, ok := part.VL3(vnet, ip)
			if wantMAC, wantAt, wantOK := want.VL3(vnet, ip); mac != wantMAC || at != wantAt || ok != wantOK {
				t.Fatalf("VL3 of %s on vnet %d at %d: %v %v %v, want %v %v %v", ip, vnet, seq, mac, at, ok, wantMAC, wantAt, wantOK)
			}
		}
	}
}

func checkScopes(t rapid.TB, got, want *projections.State, scopes []log.Scope, seq log.Seq) {
	t.Helper()
	for _, scope := range scopes {
		g, w := slices.Collect(got.InScope(scope)), slices.Collect(want.InScope(scope))
		if !reflect.DeepEqual(g, w) {
			t.Fatalf("%s at %d: %+v\nwant %+v", scope, seq, g, w)
		}
	}
}

// checkObjects compares each object that there ever was, and its history.
func checkObjects(t rapid.TB, h *pastLog, f *Folder, seq log.Seq, want *projections.State) {
	t.Helper()
	of := map[Ref][]log.Seq{}
	for _, entry := range h.entries {
		e, err := entry.Event()
		if err != nil {
			t.Fatalf("%v", err)
		}
		ref := Ref{e.Kind, e.ID}
		if of[ref] == nil {
			of[ref] = []log.Seq{}
		}
		if entry.Seq > f.Floor() {
			of[ref] = append(of[ref], entry.Seq)
		}
	}
	for ref, seqs := range of {
		rec, ok, err := f.ObjectAt(context.Background(), ref, seq)
		wantRec, wantOK := want.Get(ref.Kind, ref.ID)
		if err != nil || ok != wantOK || !reflect.DeepEqual(rec, wantRec) {
			t.Fatalf("%+v at %d: %+v %v %v, want %+v %v", ref, seq, rec, ok, err, wantRec, wantOK)
		}
		var got []log.Seq
		err = f.view(func(tx *bbolt.Tx) (err error) {
			got, err = historyOf(context.Background(), tx, &f.blocks, ref, 0, 0)
			return err
		})
		if err != nil || !slices.Equal(got, seqs) {
			t.Fatalf("history of %+v: %v %v, want %v", ref, got, err, seqs)
		}
	}
}

// TestPastOverSegments: the same with blocks that are stored, and where they are
// not, as in a folder of before the index; two folders of one log are the same
// file; the entries come back as they were.
func TestPastOverSegments(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	h := newPastLog(t, 42)
	for len(h.entries) < 2*SegmentEvents+100 {
		h.step()
	}
	dir := t.TempDir()
	f := h.folder(filepath.Join(dir, "a"), 0, 9000)
	defer f.Close()
	g := h.folder(filepath.Join(dir, "b"), 0, 9000)
	defer g.Close()
	if a, b := rowsSum(t, f), rowsSum(t, g); a != b {
		t.Errorf("two folders of one log hold %x and %x", a, b)
	}
	for _, seq := range []log.Seq{1, 8999, SegmentEvents, SegmentEvents + 1, 20_000, log.Seq(len(h.entries))} {
		checkPast(t, h, f, seq)
	}
	v, err := f.Verify(t.Context(), nil)
	if err != nil || len(v.Problems) > 0 || v.Blocks != 2 || v.Events != uint64(len(h.entries)) || v.Checkpoints != 3 {
		t.Errorf("verify: %v, %+v", err, v)
	}
	at, err := f.SeqAt(1000e9 + 5)
	if err != nil || at == 0 {
		t.Fatal(at, err)
	}
	if e, err := h.entries[at-1].Event(); err != nil || e.Time > 1000e9+5 {
		t.Errorf("the entry at that time is of %v (%v)", e.Time, err)
	}
	if e, err := h.entries[at].Event(); err != nil || e.Time <= 1000e9+5 {
		t.Errorf("the entry after it is of %v (%v)", e.Time, err)
	}
	if _, err := f.StateAt(t.Context(), log.Seq(len(h.entries)+1)); !errors.Is(err, log.ErrAhead) {
		t.Errorf("state of the future: %v", err)
	}
}
