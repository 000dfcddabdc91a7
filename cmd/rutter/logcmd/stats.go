package logcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/logprint"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// Bounds of what is counted.
const (
	maxNames   = 4096 // actors, and CNs; further ones are counted together
	maxBuckets = 60   // of the rate over time
	barWidth   = 40
	topNames   = 20 // lines of each list for people
)

// otherNames is the name of the count of all beyond maxNames.
const otherNames = "others"

// counted is the result of stats. Its JSON form is that of -o json.
type counted struct {
	Entries  uint64            `json:"entries"`
	Bytes    uint64            `json:"bytes"`
	First    log.Seq           `json:"first_seq"`
	Last     log.Seq           `json:"last_seq"`
	From     log.Time          `json:"first_time"`
	To       log.Time          `json:"last_time"`
	Kinds    map[string]uint64 `json:"kinds"`
	KindSize map[string]uint64 `json:"bytes_by_kind"`
	Actions  map[string]uint64 `json:"actions"`
	Actors   map[string]uint64 `json:"actors"`
	CNs      map[string]uint64 `json:"cns"`
	Rate     []uint64          `json:"rate"`       // entries in each interval from first_time on
	Stretch  time.Duration     `json:"stretch_ns"` // length of an interval

	view log.EventView
}

func newCounted() *counted {
	return &counted{
		Kinds: map[string]uint64{}, KindSize: map[string]uint64{}, Actions: map[string]uint64{},
		Actors: map[string]uint64{}, CNs: map[string]uint64{}, Stretch: time.Second,
	}
}

func (s *counted) add(e log.Entry) error {
	v := &s.view
	if err := v.Read(e.Bytes); err != nil {
		return fmt.Errorf("seq %d: %w", e.Seq, err)
	}
	if s.Entries == 0 {
		s.First, s.From = e.Seq, v.Time
	}
	s.Entries++
	s.Last, s.To = e.Seq, v.Time
	s.Bytes += uint64(len(e.Bytes))
	kind := v.Kind.String()
	s.Kinds[kind]++
	s.KindSize[kind] += uint64(len(e.Bytes))
	s.Actions[v.Action.String()]++
	count(s.Actors, v.Actor)
	s.at(time.Duration(v.Time - s.From))
	return v.EachScope(func(b []byte) bool {
		var scope log.Scope
		if scope.UnmarshalBinary(b) == nil && scope.Type == log.ScopeCN {
			count(s.CNs, []byte(scope.ID.String()))
		}
		return true
	})
}

// count adds 1 to a name, or to otherNames if there are too many names.
func count(names map[string]uint64, name []byte) {
	if _, ok := names[string(name)]; !ok && len(names) >= maxNames {
		name = []byte(otherNames)
	}
	names[string(name)]++
}

// at counts an entry in its interval of time. The length of intervals doubles when
// there are too many.
func (s *counted) at(since time.Duration) {
	for int64(since/s.Stretch) >= maxBuckets {
		s.Stretch *= 2
		half := s.Rate[:0]
		for i := 0; i < len(s.Rate); i += 2 {
			n := s.Rate[i]
			if i+1 < len(s.Rate) {
				n += s.Rate[i+1]
			}
			half = append(half, n)
		}
		s.Rate = half
	}
	i := int(max(since, 0) / s.Stretch)
	for len(s.Rate) <= i {
		s.Rate = append(s.Rate, 0)
	}
	s.Rate[i]++
}

func stats(c *cli.Context) (err error) {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	r, err := newReading(c)
	if err != nil {
		return err
	}
	if err := r.from(c.String("from")); err != nil {
		return err
	}
	from, err := openLog(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	after, err := beginOf(c, from, r)
	if err != nil {
		return err
	}
	s := newCounted()
	for e, err := range selected(from.entries(c.Context, after), r.filter) {
		if err == nil {
			err = s.add(e)
		}
		if err != nil {
			return logprint.Ended(c.Context, err, false)
		}
	}
	return output.One(c, s, s.print)
}

// beginOf returns the seq after which a reading of stored entries begins.
func beginOf(c *cli.Context, from reader, r *reading) (log.Seq, error) {
	if r.begin == "" {
		return r.after, nil
	}
	first := *r
	first.limit = 1
	if r.begin == "last" {
		first.limit = 0
	}
	for l, err := range from.lines(c.Context, &first) {
		return max(l.Seq, 1) - 1, err
	}
	_, head, err := from.begins(c.Context, nil)
	return head.Seq, err // nothing is selected
}

func (s *counted) print(out io.Writer) {
	w := output.Aligned(out)
	defer w.Flush()
	output.Printf(w, "%d entries, %d bytes", s.Entries, s.Bytes)
	if s.Entries == 0 {
		output.Print(w, "\n")
		return
	}
	span := time.Duration(s.To - s.From).Round(time.Millisecond)
	output.Printf(w, ", %d each\n#%d to #%d, %s to %s: %v", s.Bytes/s.Entries, s.First, s.Last, s.From, s.To, span)
	if span > 0 {
		output.Printf(w, ", %.1f entries/s", float64(s.Entries)/span.Seconds())
	}
	output.Print(w, "\n")
	for _, list := range []struct {
		title string
		names map[string]uint64
		bytes map[string]uint64
	}{{"KIND", s.Kinds, s.KindSize}, {"ACTION", s.Actions, nil}, {"ACTOR", s.Actors, nil}, {"CN", s.CNs, nil}} {
		printNames(w, list.title, list.names, list.bytes)
	}
	output.Printf(w, "\nEACH %v FROM\tENTRIES\n", s.Stretch)
	most := slices.Max(s.Rate)
	for i, n := range s.Rate {
		at := s.From + log.Time(i)*log.Time(s.Stretch)
		output.Printf(w, "%s\t%d\t%s\n", at, n, strings.Repeat("#", int(n*barWidth/most)))
	}
}

// printNames prints the most frequent names.
func printNames(w io.Writer, title string, names, bytes map[string]uint64) {
	if len(names) == 0 {
		return
	}
	sorted := slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(names[b], names[a]), cmp.Compare(a, b))
	})
	output.Printf(w, "\n%s\tENTRIES", title)
	if bytes != nil {
		output.Print(w, "\tBYTES")
	}
	output.Print(w, "\n")
	for _, name := range sorted[:min(len(sorted), topNames)] {
		output.Printf(w, "%s\t%d", strings.Trim(fmt.Sprintf("%q", name), `"`), names[name])
		if bytes != nil {
			output.Printf(w, "\t%d", bytes[name])
		}
		output.Print(w, "\n")
	}
	if more := len(sorted) - topNames; more > 0 {
		output.Printf(w, "and %d more: -o json has them\n", more)
	}
}
