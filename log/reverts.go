package log

import (
	"fmt"
	"slices"
	"strings"
)

// MaxReverts bounds Reverts: each event of a change carries all of it.
const MaxReverts = 32

// SeqRange are the entries from First to Last, both of them included.
type SeqRange struct{ First, Last Seq }

// Reverts names the entries that a change takes back: ranges in the order of the log, none
// of which meets the next, at most MaxReverts. A change that takes back nothing has none.
// From FeatureDeclared on; before, programs do not know it.
type Reverts []SeqRange

// RevertsOf returns the ranges of entries, in any order, each of which may be named twice.
// If they are more than MaxReverts, those with the smallest gaps between them are joined:
// the ranges then say more than was meant, and never less.
func RevertsOf(seqs []Seq) Reverts {
	var r Reverts
	for _, seq := range slices.Sorted(slices.Values(seqs)) {
		if n := len(r); n > 0 && seq <= r[n-1].Last+1 {
			r[n-1].Last = seq
			continue
		}
		r = append(r, SeqRange{seq, seq})
	}
	if len(r) <= MaxReverts {
		return r
	}
	gaps := make([]int, len(r)-1) // places of ranges behind which a gap is, the largest gap first
	for i := range gaps {
		gaps[i] = i
	}
	slices.SortStableFunc(gaps, func(a, b int) int {
		x, y := r[a+1].First-r[a].Last, r[b+1].First-r[b].Last
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	kept := slices.Sorted(slices.Values(gaps[:MaxReverts-1]))
	joined := make(Reverts, 0, MaxReverts)
	first := 0
	for _, i := range append(kept, len(r)-1) {
		joined = append(joined, SeqRange{r[first].First, r[i].Last})
		first = i + 1
	}
	return joined
}

// Check returns what is wrong with ranges that a client sent, or nil.
func (r Reverts) Check() error {
	if len(r) > MaxReverts {
		return fmt.Errorf("%d ranges of entries are over %d: join neighbours", len(r), MaxReverts)
	}
	for i, s := range r {
		switch {
		case s.First == 0 || s.Last < s.First:
			return fmt.Errorf("range %d of entries is #%s-#%s: a range begins at 1 or later, and does not end before", i+1, s.First, s.Last)
		case i > 0 && s.First <= r[i-1].Last:
			return fmt.Errorf("range %d of entries begins at #%s, and the one before ends at #%s: they must be in order", i+1, s.First, r[i-1].Last)
		}
	}
	return nil
}

// Has reports whether an entry is one of them.
func (r Reverts) Has(seq Seq) bool {
	return slices.ContainsFunc(r, func(s SeqRange) bool { return s.First <= seq && seq <= s.Last })
}

// String returns the form that people read, as in "#1042,#1050-#1060"; "" for none.
func (r Reverts) String() string {
	var b strings.Builder
	for i, s := range r {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("#" + s.First.String())
		if s.Last != s.First {
			b.WriteString("-#" + s.Last.String())
		}
	}
	return b.String()
}

// ParseReverts reads what String returns; the # may be missing.
func ParseReverts(text string) (r Reverts, err error) {
	if text == "" {
		return nil, nil
	}
	if n := strings.Count(text, ",") + 1; n > MaxReverts {
		return nil, fmt.Errorf("%d ranges of entries are over %d: join neighbours", n, MaxReverts)
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, is := strings.Cut(part, "-")
		var s SeqRange
		if s.First, err = ParseSeq(strings.TrimPrefix(first, "#")); err == nil {
			if s.Last = s.First; is {
				s.Last, err = ParseSeq(strings.TrimPrefix(last, "#"))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s names no entries: send seqs and ranges of them, as in #1042,#1050-#1060", Quote(text))
		}
		r = append(r, s)
	}
	return r, r.Check()
}

// MarshalText implements encoding.TextMarshaler.
func (r Reverts) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Reverts) UnmarshalText(text []byte) (err error) {
	*r, err = ParseReverts(string(text))
	return err
}

// encode writes the ranges as a flat array of first and last seqs.
func (r Reverts) encode(v *encoder) {
	v.array(2 * len(r))
	for _, s := range r {
		v.uint(uint64(s.First))
		v.uint(uint64(s.Last))
	}
}

func (r *Reverts) decode(v *decoder) {
	flat := list(v, func(n *Seq) { v.u64("", (*uint64)(n)) })
	if len(flat)%2 != 0 {
		v.fail(fmt.Errorf("ranges of entries of %d numbers, which is odd", len(flat)))
		return
	}
	for i := 0; i < len(flat); i += 2 {
		*r = append(*r, SeqRange{flat[i], flat[i+1]})
	}
}
