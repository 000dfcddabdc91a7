package feed

import (
	"testing"

	"rutter/log"
)

// TestWelcomeOfOtherPrograms: a program of before Welcome.Knows reads the welcome of one
// that has it, because what follows the fields that it knows is left alone; this program
// reads that of one without it, and of one with more.
func TestWelcomeOfOtherPrograms(t *testing.T) {
	head := log.Cursor{Cluster: uuid(1), Seq: 47, Chain: log.ChainPrefix{1, 2}}
	payload := func(w *Welcome) []byte {
		p := &payloadWriter{}
		w.write(p)
		return p.b
	}
	fresh, old := payload(&Welcome{Version, head, 6}), payload(&Welcome{Version: Version, Head: head})
	for name, c := range map[string]struct {
		payload []byte
		want    Welcome
	}{
		"of before": {old, Welcome{Version: Version, Head: head}},
		"ours":      {fresh, Welcome{Version, head, 6}},
		"of later":  {append(fresh[:len(fresh):len(fresh)], 1, 2, 3), Welcome{Version, head, 6}},
		"cut":       {fresh[:len(fresh)-1], Welcome{Version: Version, Head: head}},
	} {
		m, err := Decode(Frame{Type: TypeWelcome, Seq: head.Seq, Payload: c.payload})
		if got, is := m.(*Welcome); err != nil || !is || *got != c.want {
			t.Errorf("%s: got %+v, %v", name, m, err)
		}
		// As the decoder of before read it: two fields, and nothing of what follows.
		r := payloadReader{b: c.payload}
		if version, at := r.u16(), (log.Cursor{Cluster: r.uuid(), Seq: head.Seq, Chain: r.prefix()}); r.err != nil || version != Version || at != head {
			t.Errorf("%s, read by a program of before: %d, %v, %v", name, version, at, r.err)
		}
	}
}
