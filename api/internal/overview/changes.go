package overview

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"rutter/log"
)

// Bounds of counting the log.
const (
	// Span is how far back changes are counted and samples are kept: who is called at night
	// asks for the last hour.
	Span = time.Hour
	// changeBucket is how finely changes are forgotten.
	changeBucket = time.Minute
	buckets      = int(Span / changeBucket)
	// maxActors bounds the actors that one bucket counts by name.
	maxActors = 64
	// maxShown bounds the actors of an answer.
	maxShown = 12
	// maxRead bounds the entries that one reading of the log looks at; those before them
	// are skipped and said to be. It is ten times what a cluster writes in SampleEvery.
	maxRead = 200_000
	// readEntries is how many entries are read at once.
	readEntries = 1024

	otherActors  = "others"
	computeNodes = "compute nodes"
)

// cnActor is how actors begin that are compute nodes: these are counted together.
var cnActor = []byte("cn:")

// ChangesForm is what changed in the last hour.
type ChangesForm struct {
	// Since is the time from which on the entries were counted: an hour ago, or later if
	// the log is younger.
	Since   log.Time `json:"since"`
	Entries int      `json:"entries"`
	// Skipped are the entries of that time which were too many to be looked at.
	Skipped uint64      `json:"skipped,omitempty"`
	Kinds   []KindForm  `json:"kinds"`  // the most changed first
	Actors  []ActorForm `json:"actors"` // the busiest first; all compute nodes are one
}

// KindForm counts the entries of a kind.
type KindForm struct {
	Kind   log.Kind `json:"kind"`
	Create int      `json:"create"`
	Update int      `json:"update"`
	Delete int      `json:"delete"`
}

// ActorForm counts the entries of an actor.
type ActorForm struct {
	Actor   string `json:"actor"`
	Entries int    `json:"entries"`
}

type change struct {
	kind   log.Kind
	action log.Action
}

// bucket counts the changes of a minute.
type bucket struct {
	minute  int64 // since 1970
	changes map[change]int
	actors  map[string]int
	skipped uint64
}

// counter counts the entries of the log's last hour, each once. It must not be used
// concurrently.
type counter struct {
	store   Store
	at      log.Cursor // up to which entries were counted
	known   bool
	buckets [buckets]bucket
	view    log.EventView
}

// read counts the entries that are new, and returns how many came, those that were skipped
// among them, with a pause after each readEntries. A log that was replaced is counted anew.
func (c *counter) read(now time.Time, pause time.Duration) (came uint64, err error) {
	head := c.store.Head()
	if c.known && c.store.CheckCursor(c.at) != nil && !errors.Is(c.store.CheckCursor(c.at), log.ErrCompacted) {
		*c = counter{store: c.store}
	}
	if !c.known {
		if err := c.begin(head, now); err != nil {
			return 0, err
		}
	} else {
		came = uint64(head.Seq - c.at.Seq)
	}
	if floor := c.store.Floor(); c.at.Seq < floor {
		c.at.Seq = floor // what is not kept is not counted
	}
	if n := head.Seq - c.at.Seq; n > maxRead {
		c.bucketOf(now).skipped += uint64(n - maxRead)
		c.at.Seq = head.Seq - maxRead
	}
	for c.at.Seq < head.Seq {
		entries, err := c.store.Entries(c.at.Seq, readEntries)
		if err != nil || len(entries) == 0 {
			return came, err
		}
		for _, e := range entries {
			if err := c.count(e, now); err != nil {
				return came, err
			}
			c.at = log.Cursor{Cluster: head.Cluster, Seq: e.Seq, Chain: e.Hash.Prefix()}
		}
		time.Sleep(pause)
	}
	return came, nil
}

// begin finds the place an hour ago: times only increase along the log, unless an operator
// set them; then entries of that time are counted where they are found.
func (c *counter) begin(head log.Cursor, now time.Time) error {
	low, high := max(c.store.Floor(), head.Seq-min(head.Seq, maxRead)), head.Seq
	least := log.TimeOf(now.Add(-Span))
	for low < high {
		middle := low + (high-low)/2 + 1
		entries, err := c.store.Entries(middle-1, 1)
		if err != nil {
			return err
		}
		if err := c.view.Read(entries[0].Bytes); err != nil {
			return err
		}
		if c.view.Time < least {
			low = middle
		} else {
			high = middle - 1
		}
	}
	c.at, c.known = log.Cursor{Cluster: head.Cluster, Seq: low}, true
	if low == head.Seq {
		c.at = head
	}
	return nil
}

func (c *counter) bucketOf(t time.Time) *bucket {
	minute := t.Unix() / int64(changeBucket/time.Second)
	b := &c.buckets[minute%int64(buckets)]
	if b.minute != minute {
		*b = bucket{minute: minute, changes: make(map[change]int), actors: make(map[string]int)}
	}
	return b
}

// count counts an entry in the minute of its own time, or of now if that is in the future.
func (c *counter) count(e log.Entry, now time.Time) error {
	if err := c.view.Read(e.Bytes); err != nil {
		return err
	}
	at := c.view.Time.Std()
	if at.After(now) {
		at = now
	}
	if now.Sub(at) >= Span {
		return nil
	}
	b := c.bucketOf(at)
	b.changes[change{c.view.Kind, c.view.Action}]++
	actor := string(c.view.Actor)
	if bytes.HasPrefix(c.view.Actor, cnActor) {
		actor = computeNodes
	}
	if _, known := b.actors[actor]; !known && len(b.actors) >= maxActors {
		actor = otherActors
	}
	b.actors[actor]++
	return nil
}

// form adds the minutes of the last hour up.
func (c *counter) form(now time.Time) ChangesForm {
	f := ChangesForm{Since: log.TimeOf(now.Add(-Span)), Kinds: []KindForm{}, Actors: []ActorForm{}}
	kinds, actors := make(map[log.Kind]*KindForm), make(map[string]int)
	oldest := now.Add(-Span).Unix() / int64(changeBucket/time.Second)
	for i := range c.buckets {
		b := &c.buckets[i]
		if b.minute <= oldest {
			continue
		}
		f.Skipped += b.skipped
		for what, n := range b.changes {
			k := kinds[what.kind]
			if k == nil {
				k = &KindForm{Kind: what.kind}
				kinds[what.kind] = k
			}
			switch what.action {
			case log.Create:
				k.Create += n
			case log.Update:
				k.Update += n
			case log.Delete:
				k.Delete += n
			}
			f.Entries += n
		}
		for actor, n := range b.actors {
			actors[actor] += n
		}
	}
	for _, k := range kinds {
		f.Kinds = append(f.Kinds, *k)
	}
	slices.SortFunc(f.Kinds, func(a, b KindForm) int {
		return cmp.Or(cmp.Compare(b.Create+b.Update+b.Delete, a.Create+a.Update+a.Delete), cmp.Compare(a.Kind, b.Kind))
	})
	f.Actors = busiest(actors)
	return f
}

// busiest are the actors with the most entries; the others are one.
func busiest(actors map[string]int) []ActorForm {
	rest := actors[otherActors]
	delete(actors, otherActors)
	all := []ActorForm{}
	for _, actor := range slices.Sorted(maps.Keys(actors)) {
		all = append(all, ActorForm{actor, actors[actor]})
	}
	slices.SortStableFunc(all, func(a, b ActorForm) int { return cmp.Compare(b.Entries, a.Entries) })
	for len(all) > maxShown {
		rest += all[len(all)-1].Entries
		all = all[:len(all)-1]
	}
	if rest > 0 {
		all = append(all, ActorForm{otherActors, rest})
	}
	return all
}
