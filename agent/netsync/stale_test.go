package netsync

import (
	"testing"
	"time"

	"rutter/log"
	"rutter/log/report"
	"rutter/projections"
)

// held is the input of a pass with one running VM whose NIC is known to the log at a seq.
func held(t *testing.T, seq log.Seq) (c *core, in input, mac log.MAC, rec projections.Record) {
	t.Helper()
	c = newCore(log.UUID{0xcc, 15: 1}, newLedger(), func() log.UUID { return log.UUID{1} })
	vm := log.UUID{0xbb, 15: 1}
	mac = log.MAC{0x90, 0xb8, 0xd0, 0, 0, 1}
	state := projections.NewState()
	rec = projections.Record{Object: &log.NIC{MAC: mac, BelongsToType: "zone", BelongsToUUID: vm, CNUUID: c.cn, State: "stopped"}, Revision: 1, Seq: seq}
	if err := state.Load(rec); err != nil {
		t.Fatal(err)
	}
	in = input{
		now: time.Unix(1, 0), state: state, gone: func(log.UUID) bool { return false }, host: Host{}, place: Part{Cluster: log.UUID{9}, Seq: seq, Complete: true},
		vms: []VM{{UUID: vm, State: "running", NICs: []NIC{{MAC: mac, Fields: emptyObject()}}}},
	}
	return c, in, mac, rec
}

// TestPassOfHalfAView (architecture rule 8): before all that the node must know was held, the
// absence of a NIC says nothing, and nothing is written.
func TestPassOfHalfAView(t *testing.T) {
	c, in, mac, _ := held(t, 7)
	in.place.Complete = false
	if p := c.pass(in); p.asks() || len(p.edits) > 0 || c.ledger.claims[mac] != nil {
		t.Errorf("a pass of half a view: %+v", p)
	}
	in.place.Complete = true
	if p := c.pass(in); len(p.changes) != 1 {
		t.Errorf("a pass of a whole view: %+v, want the state of the NIC to be written", p)
	}
}

// TestAnswerOlderThanTheView (SAFETY F2): a server that is behind says that a NIC is not there,
// of which the node has heard since.
func TestAnswerOlderThanTheView(t *testing.T) {
	c, in, mac, rec := held(t, 7)
	answer := func(seq log.Seq, o log.Object) {
		c.answered(&plan{look: []log.MAC{mac}}, &report.Answer{Seq: seq, Found: []report.Found{{Key: mac.String(), Kind: log.KindNIC, Object: o}}})
	}
	answer(6, nil)
	if nic, _, known, asked := c.remote(&in, mac); nic == nil || !known || asked {
		t.Errorf("an answer as of before the view counts: %+v, known %v, asked %v", nic, known, asked)
	}
	answer(7, rec.Object)
	if nic, _, known, asked := c.remote(&in, mac); nic == nil || !known || !asked {
		t.Errorf("an answer as of the view does not count: %+v, known %v, asked %v", nic, known, asked)
	}
}
