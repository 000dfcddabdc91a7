package varp

import (
	"testing"

	"rutter/log"
)

// rebuilt is a source whose log may become another one under the same seqs, of the
// same cluster, which only the chain tells.
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

// A server that was rebuilt answers from the log that it has now: what was made of
// the other one is not gone on from.
func TestMappingsOfARebuiltServer(t *testing.T) {
	for more := range 3 { // entries by which the log that is taken over is longer
		of := func(node, more int) (*cloud, *site) {
			c := newCloud(t, 2, 2)
			c.put(&log.NIC{MAC: testMAC(1), BelongsToType: "zone", CNUUID: c.nodes[node], NetworkUUID: c.nets[0].UUID})
			for n := range more {
				c.put(&log.NIC{MAC: testMAC(2 + n), BelongsToType: "zone", CNUUID: c.nodes[node], NetworkUUID: c.nets[0].UUID})
			}
			s := newSite(c, ShootdownConfig{})
			s.catchUp(c, len(c.entries))
			return c, s
		}
		before, s := of(0, 0)
		source := &rebuilt{site: s, salt: 1}
		m := NewMappings(source, nil)
		if wrong := sameAsRows(m, s, before, 4); wrong != "" {
			t.Fatalf("before: %s", wrong)
		}
		after, other := of(1, more)
		other.cluster = s.cluster
		source.site, source.salt = other, 2
		if wrong := sameAsRows(m, other, after, 4); wrong != "" {
			t.Errorf("%d more: %s", more, wrong)
		}
	}
}
