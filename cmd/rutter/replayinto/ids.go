package replayinto

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rutter/log"
)

// changeTag is the random part of a change's id in the target. It is computed from the
// change of the source, so the target's log shows which changes it has already. The
// rest of the id is the time, from which servers know for how long to remember it.
type changeTag [10]byte

func tagOf(source mappedChange) (t changeTag) {
	h := sha256.New()
	h.Write([]byte("rutter replay"))
	h.Write(source.Cluster[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(source.First)))
	h.Write([]byte(source.Object))
	copy(t[:], h.Sum(nil))
	t[0] &= 0x0f // without the version (RFC 9562 section 5.7)
	t[2] &= 0x3f // without the variant
	return t
}

// id returns the change id of the tag at a time in milliseconds since 1970.
func (t changeTag) id(ms uint64) (id log.UUID) {
	binary.BigEndian.PutUint64(id[:8], ms<<16)
	id[6], id[7] = 0x70|t[0], t[1]
	id[8] = 0x80 | t[2]
	copy(id[9:], t[3:])
	return id
}

func tagIn(id log.UUID) (t changeTag) {
	copy(t[:], id[6:])
	t[0] &= 0x0f
	t[2] &= 0x3f
	return t
}

// place is the place of a change in the order of a replay: first the objects that the
// source begins with, then its changes.
type place uint64

// firstEntry is added to the seq of a change; there are fewer objects.
const firstEntry place = 1 << 40

// Bounds of an era.
const (
	eraChanges = 4096
	eraTime    = 5 * time.Second
	// eraLives is how long the changes of an era may be under way. Servers remember ids
	// for longer, and nothing is under way in a cluster for so long.
	eraLives = 10 * time.Minute
	// maxResumeBytes bounds the file: it has some ten eras.
	maxResumeBytes = 1 << 20
)

// era is the time in the ids of the changes from a place on.
type era struct {
	From place  `json:"from"`
	MS   uint64 `json:"ms"` // since 1970
}

// resume is what a replay knows of one that was killed: the file beside the map.
type resume struct {
	Source log.UUID `json:"source"`
	Target log.UUID `json:"target"`
	// After is a seq of the target: what the map may lack is behind it.
	After log.Seq `json:"after"`
	Eras  []era   `json:"eras"` // by place

	name  string
	now   func() time.Time
	begun time.Time // of the last era, in this process; zero: it was another's
	count int       // changes seen since its begin
}

// resumeSuffix is that of the file beside a map file.
const resumeSuffix = ".resume"

// openResume reads the file of a map file. Without one, or with one that is of other
// clusters or damaged, all is looked for in the whole log of the target.
func openResume(mapName string, source, target log.UUID, now func() time.Time) (*resume, error) {
	r := &resume{Source: source, Target: target, name: mapName + resumeSuffix, now: now}
	info, err := os.Stat(r.name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() > maxResumeBytes {
		return r, nil
	}
	b, err := os.ReadFile(r.name)
	if err != nil {
		return nil, err
	}
	if was, ok := parseResume(b); ok && was.Source == source && was.Target == target {
		r.After, r.Eras = was.After, was.Eras
	}
	return r, nil
}

// parseResume reads the content of the file; ok is false if it is damaged.
func parseResume(b []byte) (r resume, ok bool) {
	if json.Unmarshal(b, &r) != nil {
		return r, false
	}
	for i, e := range r.Eras {
		if e.MS >= 1<<48 || i > 0 && e.From <= r.Eras[i-1].From {
			return r, false
		}
	}
	return r, true
}

// idOf returns the id of a change at a place. Places only grow. It calls begin before the
// first id of a new era, which must record it.
func (r *resume) idOf(at place, tag changeTag, begin func() error) (log.UUID, error) {
	r.passed(at)
	now, last := r.now(), len(r.Eras)-1
	i, is := slices.BinarySearchFunc(r.Eras, at, func(e era, at place) int { return cmp.Compare(e.From, at) })
	if !is {
		i--
	}
	// An era of another process has as many changes as one can have, at whatever time
	// they come: each of them may be under way.
	full := i == last && (r.count > eraChanges || !r.begun.IsZero() && now.Sub(r.begun) > eraTime)
	if i >= 0 && !full && now.Sub(time.UnixMilli(int64(r.Eras[i].MS))) < eraLives {
		return tag.id(r.Eras[i].MS), nil
	}
	one := era{at, uint64(now.UnixMilli())}
	if is {
		r.Eras[i] = one
	} else {
		r.Eras = slices.Insert(r.Eras, i+1, one)
	}
	if i >= last {
		r.begun, r.count = now, 1
	}
	return tag.id(one.MS), begin()
}

// passed counts a change of the last era.
func (r *resume) passed(at place) {
	if last := len(r.Eras) - 1; last >= 0 && at >= r.Eras[last].From {
		r.count++
	}
}

// save writes the file: all that the map may lack is at oldest or behind, and in the
// target behind after.
func (r *resume) save(oldest place, after log.Seq) (err error) {
	for len(r.Eras) > 1 && r.Eras[1].From <= oldest {
		r.Eras = r.Eras[1:]
	}
	r.After = after
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(r.name), filepath.Base(r.name)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), r.name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", r.name, err), os.Remove(f.Name()))
	}
	return nil
}
