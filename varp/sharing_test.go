package varp

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"rutter/log"
	"rutter/varp/internal/places"
)

// crowdedCloud has a node, node 0, that shares a vnet with n NICs of other nodes.
func crowdedCloud(t fataler, n int) *cloud {
	c := newCloud(t, 3, 2)
	c.put(&log.NIC{MAC: testMAC(1), BelongsToType: "zone", CNUUID: c.nodes[0], NetworkUUID: c.nets[0].UUID})
	for i := range n {
		c.move(i, 1)
	}
	return c
}

// move puts the i-th NIC of crowdedCloud on a node.
func (c *cloud) move(i, node int) {
	ip := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
	c.put(&log.NIC{MAC: testMAC(100 + i), BelongsToType: "zone", CNUUID: c.nodes[node], NetworkUUID: c.nets[0].UUID, IP: ip})
}

// tells reports whether records tell of the i-th NIC's MAC.
func tells(records []Record, i int) bool {
	return slices.ContainsFunc(records, func(r Record) bool { return r.MAC == testMAC(100+i) })
}

// illumosBudget is what illumos leaves for records: 1,024 bytes with the status.
const illumosBudget = 1020

func acknowledge(s *site, me netip.Addr, records []Record) {
	ids := make([]log.UUID, len(records))
	for i, r := range records {
		ids[i] = r.ID
	}
	s.events.Remove(me, ids)
}

// startedAgain is a site after a restart, with the file that it last wrote if file.
func startedAgain(t *testing.T, c *cloud, s *site, file bool) {
	t.Helper()
	var b []byte
	if file {
		f, ok := s.events.placesFile()
		if !ok {
			t.Fatal("no file of places was to be written")
		}
		b = f.Encode()
	}
	s.startAgain(c, ShootdownConfig{}, b, 0)
}

// TestNewsBeforeAll: a server that knows nothing of a client gives it a new move in its
// first answer, and what it may have missed after it.
func TestNewsBeforeAll(t *testing.T) {
	c := crowdedCloud(t, 600)
	s := newSite(c, ShootdownConfig{})
	startedAgain(t, c, s, false)
	me, client := underlayAddr(0), newCache()
	for round := range 5 {
		c.move(300+round, 2)
		s.catchUp(c, len(c.entries))
		records := poll(t, s, me, illumosBudget)
		if !tells(records, 300+round) {
			t.Fatalf("round %d: the new move is not in the next answer", round)
		}
		acknowledge(s, me, records)
	}
	drain(t, s, me, client)
	if p := s.events.readers[me].place(me); p.Seq != log.Seq(len(c.entries)) || len(p.VNets) != 1 {
		t.Errorf("place %+v after everything, want seq %d", p, len(c.entries))
	}
}

// TestPlaceSurvivesRestart: after a restart with the file, a client that had everything
// gets what is new and nothing else; also if the server's state is behind at first.
func TestPlaceSurvivesRestart(t *testing.T) {
	for _, lost := range []int{0, 3} {
		c := crowdedCloud(t, 200)
		s := newSite(c, ShootdownConfig{})
		me := underlayAddr(0)
		drain(t, s, me, newCache())
		f, ok := s.events.placesFile()
		if !ok {
			t.Fatal("nothing is written")
		}
		if _, again := s.events.placesFile(); again {
			t.Error("it is written again though nothing changed")
		}
		s.startAgain(c, ShootdownConfig{}, f.Encode(), lost)
		s.catchUp(c, len(c.entries))
		// What this process lacked when it began to answer, and no more.
		if records := poll(t, s, me, illumosBudget); len(records) != 2*lost {
			t.Errorf("%d lost: %d records after the restart, want two for each", lost, len(records))
		}
		drain(t, s, me, newCache())
		c.move(7, 2)
		s.catchUp(c, len(c.entries))
		if records := poll(t, s, me, illumosBudget); len(records) != 2 || !tells(records, 7) {
			t.Errorf("%d lost: told %+v of one move, want its two mappings", lost, records)
		}
	}
}

// TestPlaceOfAnotherLog: a file of another log, of another node with that address, or
// that is damaged, is not used: the client gets everything.
func TestPlaceOfAnotherLog(t *testing.T) {
	for name, harm := range map[string]func(f *places.File){
		"another cluster": func(f *places.File) { f.Cluster[0]++ },
		"another chain":   func(f *places.File) { f.Chain[0]++ },
		"another node":    func(f *places.File) { f.Places[0].Node[0]++ },
		"other vnets":     func(f *places.File) { f.Places[0].VNets = []uint32{9} },
		"sound":           nil,
	} {
		c := crowdedCloud(t, 20)
		s := newSite(c, ShootdownConfig{})
		drain(t, s, underlayAddr(0), newCache())
		f, _ := s.events.placesFile()
		if harm != nil {
			harm(&f)
		}
		s.startAgain(c, ShootdownConfig{}, f.Encode(), 0)
		if got := len(poll(t, s, underlayAddr(0), 1<<20)); (got == 0) != (harm == nil) {
			t.Errorf("%s: %d records", name, got)
		}
	}
}

// TestAddressOfAnotherNode: a node that takes over another's underlay address gets
// everything, because the place was the other's. Both are on the vnet, and nothing changes
// there but the NIC of the new one.
func TestAddressOfAnotherNode(t *testing.T) {
	c := crowdedCloud(t, 20)
	c.put(&log.NIC{MAC: testMAC(2), BelongsToType: "zone", CNUUID: nodeID(2), NetworkUUID: c.nets[0].UUID})
	s := newSite(c, ShootdownConfig{})
	me := underlayAddr(0)
	drain(t, s, me, newCache())
	c.delete(testMAC(0xf000))
	c.put(&log.NIC{MAC: testMAC(0xf100), BelongsToType: "server", BelongsToUUID: nodeID(2), CNUUID: nodeID(2), NetworkUUID: c.under.UUID, IP: me, Underlay: true})
	s.catchUp(c, len(c.entries))
	told := map[log.MAC]bool{}
	for range 20 {
		records := poll(t, s, me, illumosBudget)
		for _, r := range records {
			told[r.MAC] = true
		}
		acknowledge(s, me, records)
	}
	for i := range 20 {
		if !told[testMAC(100+i)] {
			t.Fatalf("the new node is not told of NIC %d", i)
		}
	}
}

// TestPlaceFromPeers: a client that one server served goes to another one, and gets
// nothing again. From one that lost its disk it gets what is new first, and then
// everything: what that one answered before is not known.
func TestPlaceFromPeers(t *testing.T) {
	now := time.Unix(1000, 0)
	cfg := ShootdownConfig{Now: func() time.Time { return now }}
	c := crowdedCloud(t, 200)
	a, b := newSite(c, cfg), newSite(c, cfg)
	me := underlayAddr(0)
	now = now.Add(time.Second)
	drain(t, a, me, newCache())
	asks(t, b, a, func() {})
	if records := poll(t, b, me, illumosBudget); len(records) != 0 {
		t.Errorf("%d records from the other server", len(records))
	}
	a.startAgain(c, cfg, nil, 0)
	now = now.Add(time.Second)
	asks(t, a, b, func() {})
	c.move(3, 2)
	a.catchUp(c, len(c.entries))
	records := poll(t, a, me, illumosBudget)
	if !tells(records, 3) {
		t.Error("not told of a move after the disk was lost")
	}
	acknowledge(a, me, records)
	drain(t, a, me, newCache())
	now = now.Add(time.Second)
	asks(t, b, a, func() {})
	if records := poll(t, b, me, illumosBudget); len(records) > 2 {
		t.Errorf("%d records from the other server in the end", len(records))
	}
}

// TestPlaceThatCameTooEarly: a record that was delivered before this server had applied
// its change comes again from this server, whatever the client acknowledged, because
// this server may have given the client the old answer since.
func TestPlaceThatCameTooEarly(t *testing.T) {
	now := time.Unix(1000, 0)
	cfg := ShootdownConfig{Now: func() time.Time { return now }}
	c := crowdedCloud(t, 50)
	a, b := newSite(c, cfg), newSite(c, cfg)
	me := underlayAddr(0)
	now = now.Add(time.Second)
	drain(t, a, me, newCache())
	asks(t, b, a, func() {})

	c.move(9, 2)
	a.catchUp(c, len(c.entries)) // b lags
	drain(t, a, me, newCache())
	now = now.Add(time.Second)
	b.catchUp(c, len(c.entries))
	asks(t, b, a, func() {})
	if records := poll(t, b, me, illumosBudget); !tells(records, 9) {
		t.Fatalf("a server that lagged does not tell of the move: %+v", records)
	}

	// Where the client asks one server only, that one gives the record again.
	b.events.readers = map[netip.Addr]*logReader{}
	for range 3 {
		now = now.Add(time.Second)
		asks(t, b, a, func() {})
	}
	records := poll(t, a, me, illumosBudget)
	if len(records) != 2 || !tells(records, 9) {
		t.Fatalf("told again of %+v, want the move's two mappings", records)
	}
	acknowledge(a, me, records)
	now = now.Add(time.Second)
	asks(t, b, a, func() {})
	if records := poll(t, b, me, illumosBudget); len(records) != 0 {
		t.Errorf("%d records from the other server in the end", len(records))
	}
}

// TestAcknowledgedElsewhere: illumos sends each request to the next of its servers, so
// an acknowledgement comes to a server that did not deliver. It must reach the one that
// did, and no other client's records.
func TestAcknowledgedElsewhere(t *testing.T) {
	c := crowdedCloud(t, 5)
	a, b := newSite(c, ShootdownConfig{}), newSite(c, ShootdownConfig{})
	me, other := underlayAddr(0), underlayAddr(1)
	given, its := poll(t, a, me, 1<<20), poll(t, a, other, 1<<20)
	acknowledge(b, me, given)
	acknowledge(b, netip.MustParseAddr("203.0.113.9"), its) // of no node
	if len(b.events.known.acks) != 1 {
		t.Errorf("ids of %d clients are kept, want those of the one that is a node", len(b.events.known.acks))
	}
	acknowledge(b, me, its)
	asks(t, a, b, func() {})
	if records := poll(t, a, me, 1<<20); len(records) != 0 {
		t.Errorf("%d records come again", len(records))
	}
	if records := poll(t, a, other, 1<<20); len(records) != len(its) {
		t.Errorf("another client's acknowledgement removed %d records", len(its)-len(records))
	}
}

// TestHostileAcknowledgements: ids that were not delivered remove nothing, and what is
// kept of them is bounded.
func TestHostileAcknowledgements(t *testing.T) {
	now := time.Unix(1000, 0)
	c := crowdedCloud(t, 40)
	s := newSite(c, ShootdownConfig{Now: func() time.Time { return now }})
	me := underlayAddr(0)
	first := poll(t, s, me, illumosBudget)
	for row := range s.rows.NICs(100, log.MAC{}) { // ids can be computed
		s.events.Remove(me, []log.UUID{invalidation{mappingVL2(100, row.MAC), 0, row.Seq}.id()})
	}
	told := map[log.MAC]bool{}
	for range 50 {
		records := poll(t, s, me, illumosBudget)
		for _, r := range append(records, first...) {
			told[r.MAC] = true
		}
		acknowledge(s, me, records)
	}
	for i := range 40 {
		if !told[testMAC(100+i)] {
			t.Errorf("an id that was invented removed NIC %d", i)
		}
	}
	for n := range maxKeptAcks/16 + 100 {
		var ids []log.UUID
		for i := range 16 {
			ids = append(ids, testUUID(n%200, i))
		}
		s.events.known.keep(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), ids, now)
		s.events.known.keep(me, ids, now)
	}
	if n := s.events.known.nAcks; n > maxKeptAcks || len(s.events.known.acks[me].IDs) > maxKeptAcksOf {
		t.Errorf("%d ids are kept, %d of one client", n, len(s.events.known.acks[me].IDs))
	}
	now = now.Add(time.Minute)
	s.events.known.dropAcks(now)
	if s.events.known.nAcks != 0 || len(s.events.known.acks) != 0 {
		t.Errorf("%d ids are kept in the end", s.events.known.nAcks)
	}
}

// TestPlacesAreBounded: a server remembers at most MaxNodes places, whatever its peers
// tell.
func TestPlacesAreBounded(t *testing.T) {
	c := crowdedCloud(t, 1)
	s := newSite(c, ShootdownConfig{MaxNodes: 8})
	for i := range 100 {
		s.events.known.put(places.Place{CN: underlayAddr(i), VNets: []uint32{100}}, s.events.cfg.MaxNodes)
	}
	if n := len(s.events.known.places); n != 8 {
		t.Errorf("%d places", n)
	}
	if s.events.known.places[underlayAddr(99)] == nil {
		t.Error("the newest is forgotten")
	}
}

// TestMoreThanAClientCanTake: under more changes than a client can take, each answer has
// the newest change, and each mapping comes within a bounded number of answers, also
// one that moves again and again: an answer has at least 3 records that are not news,
// half of them of rows.
func TestMoreThanAClientCanTake(t *testing.T) {
	const nics, perAnswer = 60, 50
	c := crowdedCloud(t, nics)
	s := newSite(c, ShootdownConfig{MaxMappings: 4 * nics})
	me := underlayAddr(0)
	drain(t, s, me, newCache())
	dice := rand.New(rand.NewPCG(1, 2))
	last, longest := make([]int, nics), 0
	for round := range 400 {
		newest := 0
		for range perAnswer {
			newest = 1 + dice.IntN(nics-1) // 0 moves once
			c.move(newest, 1+dice.IntN(2))
			c.move(newest, 0)
			c.move(newest, 1)
		}
		if round == 100 {
			c.move(0, 2)
			c.move(newest, 2)
		}
		s.catchUp(c, len(c.entries))
		records := poll(t, s, me, illumosBudget)
		if !tells(records, newest) {
			t.Fatalf("round %d: the newest move is not told of", round)
		}
		for i := range nics {
			if tells(records, i) || i == 0 && round < 100 || i == 0 && last[0] > 100 {
				last[i] = round
			}
			longest = max(longest, round-last[i])
		}
		acknowledge(s, me, records)
	}
	if most := 2 * nics / 3 * 2; longest > most {
		t.Errorf("a mapping waited for %d answers, want at most %d", longest, most)
	}
	for _, c := range s.events.readers[me].vnets {
		if n := len(c.unread.Spans()); n > 4 {
			t.Errorf("%d spans", n)
		}
	}
}

// TestAMonthAway: three servers in one process, their Share, and a client of illumos'
// pace that is away for a month while everything moves: it hears of a new move in its
// first answer, and in the end of all; and the servers' files and questions stay idle
// where nothing changes.
func TestAMonthAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowdedCloud(t, 100)
		ctx, stop := context.WithCancel(t.Context())
		var sites []*site
		ended := make(chan error, 3)
		for range 3 {
			sites = append(sites, newSite(c, ShootdownConfig{Past: 2000, MaxMappings: 500}))
		}
		all := slices.Clone(sites) // sites changes its order, see inTurn
		ask := func(_ context.Context, address string, question []byte) ([]byte, error) {
			for _, s := range all {
				if s.name.String() == address {
					return s.events.AnswerPlaces(question)
				}
			}
			return nil, errors.New("no such server")
		}
		dir := t.TempDir()
		for _, s := range sites {
			peers := func() (list []string) {
				for _, other := range all {
					if other != s {
						list = append(list, other.name.String())
					}
				}
				return list
			}
			go func() {
				ended <- s.events.Share(ctx, Sharing{File: filepath.Join(dir, s.name.String()), Peers: peers, Ask: ask})
			}()
		}
		me, client := underlayAddr(0), newCache()
		inTurn := func() []Record { // one batch as illumos does it, each request at the next server
			records := poll(t, sites[0], me, illumosBudget)
			for _, r := range records {
				client.obey(sites[1], r)
			}
			time.Sleep(time.Second)
			acknowledge(sites[1], me, records)
			time.Sleep(time.Second)
			sites = append(sites[1:], sites[0])
			return records
		}
		for range 40 {
			inTurn()
		}
		for range 3 {
			if records := inTurn(); len(records) != 0 {
				t.Errorf("%d records after 40 batches of a client that has all", len(records))
			}
		}
		stop() // the month passes without the tickers: they would be a hundred million
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		time.Sleep(30 * 24 * time.Hour)
		if records := inTurn(); len(records) != 0 {
			t.Errorf("%d records after a month without a change", len(records))
		}
		for round := range 30 {
			time.Sleep(24 * time.Hour)
			for i := range 100 {
				c.move(i, 1+round%2)
			}
		}
		for i := range 3 {
			sites[i].catchUp(c, len(c.entries))
		}
		for i := range 3 {
			c.move(50+i, 1)
			for _, s := range sites {
				s.catchUp(c, len(c.entries))
			}
			if records := inTurn(); !tells(records, 50+i) {
				t.Errorf("move %d after a month is not in the next answer", i)
			}
		}
		for _, s := range sites {
			drain(t, s, me, client)
		}
		if wrong := client.stale(c.truth, c.truth.VNets(c.nodes[0]), true); wrong != "" {
			t.Error(wrong)
		}
		if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 3 {
			t.Errorf("files %v, want three", files)
		}
	})
}

// TestPlacesFile: a file that is missing, damaged, of another server, or that cannot be
// read, is none, and nothing fails.
func TestPlacesFile(t *testing.T) {
	c := crowdedCloud(t, 5)
	s := newSite(c, ShootdownConfig{})
	drain(t, s, underlayAddr(0), newCache())
	f, _ := s.events.placesFile()
	sound := f.Encode()
	write := func(b []byte) string {
		file := filepath.Join(t.TempDir(), "places")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	huge := write(sound)
	if err := os.Truncate(huge, maxPlacesFile+1); err != nil { // it takes no room
		t.Fatal(err)
	}
	for name, one := range map[string]struct {
		self, file string
		used       bool
	}{
		"missing":           {"", filepath.Join(t.TempDir(), "none"), false},
		"damaged":           {"", write([]byte("rutter-svp-places-1\nxx")), false},
		"cut":               {"", write(sound[:len(sound)-1]), false},
		"of another server": {"server-2", write(sound), false},
		"a folder":          {"", t.TempDir(), false},
		"huge":              {"", huge, false},
		"sound":             {"", write(sound), true},
	} {
		s.restart(ShootdownConfig{})
		if _, err := readPlaces(one.file); name == "huge" && !errors.Is(err, errNotPlaces) {
			t.Errorf("%s: %v, want that it is not read", name, err)
		}
		s.events.LoadPlaces(one.self, one.file)
		if used := s.events.known.loaded != nil; used != one.used {
			t.Errorf("%s: used: %v", name, used)
		}
	}
}

// TestRestartOfAServerThatLagged: a server that lagged, and gave a client the old answer
// after another server had told it of the change, starts again. What it did before is
// not known then, so it tells the client, whatever that acknowledged to the other.
func TestRestartOfAServerThatLagged(t *testing.T) {
	for _, file := range []bool{false, true} {
		now := time.Unix(1000, 0)
		cfg := ShootdownConfig{Now: func() time.Time { return now }}
		c := crowdedCloud(t, 50)
		a, b := newSite(c, cfg), newSite(c, cfg)
		me := underlayAddr(0)
		now = now.Add(time.Second)
		drain(t, a, me, newCache())
		drain(t, b, me, newCache())
		var saved []byte
		if f, ok := b.events.placesFile(); ok && file {
			saved = f.Encode()
		}
		c.move(9, 2)
		a.catchUp(c, len(c.entries))
		drain(t, a, me, newCache()) // and b, which lags, answers a lookup
		now = now.Add(10 * time.Second)
		b.catchUp(c, len(c.entries)) // b starts again, and reads the log before it answers
		b.startAgain(c, cfg, saved, 0)
		now = now.Add(time.Second)
		asks(t, b, a, func() {})
		records := poll(t, b, me, illumosBudget)
		if !tells(records, 9) {
			t.Fatalf("file %v: the move is not told of: %+v", file, records)
		}
		if file && len(records) != 2 {
			t.Errorf("%d records, want the two of the move: the file has the others", len(records))
		}
		// Where the client asks the other server only, that one tells of it again.
		asks(t, a, b, func() {})
		asks(t, b, a, func() {})
		if records := poll(t, a, me, illumosBudget); file && !tells(records, 9) {
			t.Errorf("the other server does not tell of it again: %+v", records)
		}
	}
}

// TestGivenAgainDuringASweep: what another server wants to be given again is, also on a
// vnet that is swept.
func TestGivenAgainDuringASweep(t *testing.T) {
	for _, acknowledged := range []bool{false, true} {
		c := crowdedCloud(t, 600)
		s := newSite(c, ShootdownConfig{Past: 10})
		me := underlayAddr(0)
		acknowledge(s, me, poll(t, s, me, illumosBudget))
		from := log.Seq(len(c.entries))
		c.move(9, 2)
		s.catchUp(c, len(c.entries))
		records := poll(t, s, me, illumosBudget)
		if acknowledged {
			acknowledge(s, me, records)
		}
		if !tells(records, 9) || !s.events.readers[me].vnets[100].sweeping {
			t.Fatal("the test does not test a sweep")
		}
		q := places.Question{Again: []places.Again{{CN: me, From: from, To: log.Seq(len(c.entries))}}}
		if _, err := s.events.AnswerPlaces(q.Encode()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			records = poll(t, s, me, illumosBudget)
			if tells(records, 9) {
				break
			}
			acknowledge(s, me, records)
		}
		if !tells(records, 9) {
			t.Errorf("acknowledged before: %v: the move is not told of again", acknowledged)
		}
	}
}

// TestPlacesOfAReplacedLog: what a server had applied of another log says nothing about
// claims of this one, also where no client has asked since.
func TestPlacesOfAReplacedLog(t *testing.T) {
	now := time.Unix(1000, 0)
	c := crowdedCloud(t, 5)
	s := newSite(c, ShootdownConfig{Now: func() time.Time { return now }})
	s.events.noteApplied()
	now = now.Add(time.Second)
	s.events.noteApplied()
	if s.events.known.applied.At(now) != log.Seq(len(c.entries)) {
		t.Fatal("what was applied is not noted")
	}
	s.cluster = testUUID(9, 7)
	s.events.noteApplied()
	if got := s.events.known.applied.At(now.Add(-time.Millisecond)); got != 0 {
		t.Errorf("seq %d counts as applied, of another log", got)
	}
}
