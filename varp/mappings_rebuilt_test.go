package varp

import (
	"testing"

	"rutter/log"
)

// rebuilt is a source whose log may become another one under the same seqs, of the
// same cluster, which only the chain shows.
type rebuilt struct {
	*site
	salt byte
}

func (r *rebuilt) Head() log.Cursor {
	head := r.site.Head()
	head.Chain = log.ChainPrefix{r.salt, byte(head.Seq)}
	return head
}

func (r *rebuilt) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	entries, err := r.site.Entries(after, limit)
	chained := make([]log.Entry, len(entries))
	for i, e := range entries {
		chained[i] = e
		chained[i].Hash = log.Hash{r.salt, byte(e.Seq)}
	}
	return chained, err
}

// rebuiltOf is a cloud whose NICs are on a node, some more than one of them.
func rebuiltOf(t *testing.T, node, more int) (*cloud, *site) {
	c := newCloud(t, 2, 2)
	for n := range 1 + more {
		c.put(&log.NIC{MAC: testMAC(1 + n), BelongsToType: "zone", CNUUID: c.nodes[node], NetworkUUID: c.nets[0].UUID})
	}
	s := newSite(c, ShootdownConfig{})
	s.catchUp(c, len(c.entries))
	return c, s
}

// A server that was rebuilt answers from its new log, and does not continue with the
// copy of the old one.
func TestMappingsOfARebuiltServer(t *testing.T) {
	for more := range 5 { // entries of the log that is taken over, beside one; the other has two
		before, s := rebuiltOf(t, 0, 2)
		source := &rebuilt{site: s, salt: 1}
		m := NewMappings(source, nil)
		if wrong := sameAsRows(m, s, before, 4); wrong != "" {
			t.Fatalf("before: %s", wrong)
		}
		after, other := rebuiltOf(t, 1, more)
		other.cluster = s.cluster
		source.site, source.salt = other, 2
		if wrong := sameAsRows(m, other, after, 4); wrong != "" {
			t.Errorf("%d more: %s", more, wrong)
		}
	}
}

// What a node was given from the old log, and acknowledged, is reported again from the
// new log after the server was rebuilt.
func TestShootdownsOfARebuiltServer(t *testing.T) {
	for more := range 5 { // as above
		before, s := rebuiltOf(t, 0, 2)
		source := &rebuilt{site: s, salt: 1}
		events, err := NewShootdowns(ShootdownConfig{Source: source})
		if err != nil {
			t.Fatal(err)
		}
		at, _ := s.rows.underlayOf(before.nodes[0])
		// all takes and acknowledges what there is to tell.
		all := func() (told map[log.MAC]bool) {
			told = make(map[log.MAC]bool)
			for {
				records, ok := events.Events(nil, at.Addr, 1<<20)
				if !ok {
					t.Fatalf("%d more: the log cannot be read", more)
				}
				if len(records) == 0 {
					return told
				}
				var ids []log.UUID
				for _, r := range records {
					told[r.MAC] = true
					ids = append(ids, r.ID)
				}
				events.Remove(at.Addr, ids)
			}
		}
		if told := all(); !told[testMAC(1)] {
			t.Fatalf("before: told %v", told)
		}
		_, other := rebuiltOf(t, 0, more)
		other.cluster = s.cluster
		source.site, source.salt = other, 2
		if told := all(); !told[testMAC(1)] {
			t.Errorf("%d more: told %v of the other log, without what it has of a NIC that was told before", more, told)
		}
	}
}

// wholeChanges is a source that reads as a store does: at most a limit, and then one
// complete change at a time.
type wholeChanges struct{ *site }

func (w wholeChanges) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	return w.site.Entries(after, min(limit, 1))
}

// An entry that alone reaches the limit of a read hides none after it.
func TestFollowingInSmallReadings(t *testing.T) {
	c, s := rebuiltOf(t, 0, 3)
	source := wholeChanges{s}
	m := NewMappings(source, nil)
	events, err := NewShootdowns(ShootdownConfig{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	if wrong := sameAsRows(m, s, c, 8); wrong != "" {
		t.Fatal(wrong)
	}
	at, _ := s.rows.underlayOf(c.nodes[0])
	events.Events(nil, at.Addr, 1<<20)
	for n := range 3 {
		c.put(&log.NIC{MAC: testMAC(1 + n), BelongsToType: "zone", CNUUID: c.nodes[1], NetworkUUID: c.nets[0].UUID})
	}
	s.catchUp(c, len(c.entries))
	if wrong := sameAsRows(m, s, c, 8); wrong != "" {
		t.Error(wrong)
	}
	records, _ := events.Events(nil, at.Addr, 1<<20)
	told := make(map[log.MAC]bool)
	for _, r := range records {
		told[r.MAC] = true
	}
	for n := range 3 {
		if !told[testMAC(1+n)] {
			t.Errorf("NIC %s moved, and is not told of", testMAC(1+n))
		}
	}
}
