package feed

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"rutter/log"
)

// preparing is a recorder that notes what was prepared, and fails at one seq.
type preparing struct {
	recorder
	prepared []string
	bad      log.Seq
	slow     time.Duration
}

func (p *preparing) Prepare(m Message) error {
	e, ok := m.(*Entry)
	if !ok {
		return nil
	}
	if e.Seq == p.bad {
		return fmt.Errorf("entry %d: %w", e.Seq, ErrFrame)
	}
	p.prepared = append(p.prepared, fmt.Sprintf("entry %d", e.Seq))
	return nil
}

func (p *preparing) Entry(m *Entry) error {
	time.Sleep(p.slow)
	return p.recorder.Entry(m)
}

// TestFollowPreparesAhead: a handler that prepares gets every message once and in
// order, however slow it is, and each was prepared before.
func TestFollowPreparesAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entries = 3 * aheadBatch * aheadBatches
		h := &preparing{slow: time.Millisecond}
		want := []string{"welcome 10"}
		_ = follow(t, t.Context(), h, nil, func(s *server) {
			s.send(&Welcome{Head: log.Cursor{Seq: 10}})
			for seq := log.Seq(11); seq <= 10+entries; seq++ {
				s.send(&Entry{Seq: seq})
				want = append(want, fmt.Sprintf("entry %d", seq))
			}
			s.send(&Bookmark{Seq: 10 + entries})
			want = append(want, fmt.Sprintf("bookmark %d", 10+entries))
		})
		if !slices.Equal(h.calls, want) {
			t.Errorf("%d calls, want %d; the last is %s", len(h.calls), len(want), h.calls[len(h.calls)-1])
		}
		if !slices.Equal(h.prepared, want[1:len(want)-1]) {
			t.Errorf("%d entries were prepared, want %d", len(h.prepared), entries)
		}
	})
}

// TestFollowEndsWithPreparersError: what came before the bad message is taken.
func TestFollowEndsWithPreparersError(t *testing.T) {
	h := &preparing{bad: 13}
	err := follow(t, t.Context(), h, nil, func(s *server) {
		s.send(&Welcome{Head: log.Cursor{Seq: 20}}, &Entry{Seq: 11}, &Entry{Seq: 12})
		b, err := Append(nil, &Entry{Seq: 13})
		if err != nil {
			t.Error(err)
		}
		_, _ = s.conn.Write(b)
	})
	if !errors.Is(err, ErrFrame) {
		t.Errorf("error %v, want that of Prepare", err)
	}
	if want := []string{"welcome 20", "entry 11", "entry 12"}; !slices.Equal(h.calls, want) {
		t.Errorf("calls %v, want %v", h.calls, want)
	}
}

// TestFollowEndsWithSlowHandlersError: the reader, which waits to hand over, ends too.
func TestFollowEndsWithSlowHandlersError(t *testing.T) {
	broken := errors.New("broken")
	h := &preparing{recorder: recorder{err: broken}}
	err := follow(t, t.Context(), h, nil, func(s *server) {
		s.send(&Welcome{Head: log.Cursor{Seq: 20}}, &Bookmark{Seq: 11})
		for seq := log.Seq(12); ; seq++ {
			b, err := Append(nil, &Entry{Seq: seq})
			if err != nil {
				t.Error(err)
			}
			if _, err := s.conn.Write(b); err != nil {
				return // it has hung up
			}
		}
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want the handler's", err)
	}
}
