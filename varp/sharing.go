package varp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"rutter/log"
	"rutter/varp/internal/places"
)

// Sharing is how the places of clients outlive a server: each server asks the others
// for them, and writes them to a file. Both happen rarely and in bulk, and no
// acknowledgement waits for either. A place that is lost, damaged or too old costs a
// sweep, never a shootdown.
type Sharing struct {
	// Self names this server, in at most 255 bytes: the file of another one is not used.
	Self string
	// File has the places while the server does not run. It is written every
	// PlacesEvery if anything changed, and when Share ends. It is not synced, because
	// an older one does no harm. "": none.
	File string
	// Peers returns the addresses of the other servers, and Ask sends a question to one
	// of them, which answers it with AnswerPlaces. nil: there are none.
	Peers func() []string
	Ask   func(ctx context.Context, address string, question []byte) ([]byte, error)
}

// Times of sharing.
const (
	// PlacesEvery is how often the file is written. What a server that crashes had not
	// written comes from its peers, or is given again.
	PlacesEvery = 10 * time.Second
	// askPlaces is how often each other server is asked: less than the second that
	// illumos waits between an acknowledgement and its next request, which goes to
	// another server.
	askPlaces = 500 * time.Millisecond
	// askPlacesWithin bounds one question.
	askPlacesWithin = 3 * time.Second
	// noteApplied is how exactly a server knows when it had applied what.
	noteApplied = 50 * time.Millisecond
	// tellIdle is how often the others learn of a client that is given nothing.
	tellIdle = 10 * time.Second
	// againEvery is how often the same records are asked for again.
	againEvery = 30 * time.Second
)

// Share shares the places of clients until ctx ends.
func (s *Shootdowns) Share(ctx context.Context, sharing Sharing) error {
	s.LoadPlaces(sharing.Self, sharing.File)
	note, ask, save := time.NewTicker(noteApplied), time.NewTicker(askPlaces), time.NewTicker(PlacesEvery)
	defer note.Stop()
	defer ask.Stop()
	defer save.Stop()
	asking := &peersAsked{s: s, ask: sharing.Ask, busy: make(map[string]bool)}
	defer asking.wg.Wait()
	for {
		select {
		case <-ctx.Done():
			s.savePlaces(sharing.File)
			return nil
		case <-note.C:
			s.noteApplied()
		case <-ask.C:
			if sharing.Peers != nil {
				for _, peer := range sharing.Peers() {
					asking.start(ctx, peer)
				}
			}
		case <-save.C:
			s.savePlaces(sharing.File)
		}
	}
}

// peersAsked asks each peer one question at a time.
type peersAsked struct {
	s   *Shootdowns
	ask func(ctx context.Context, address string, question []byte) ([]byte, error)
	wg  sync.WaitGroup

	mu   sync.Mutex // protects busy
	busy map[string]bool
}

func (p *peersAsked) start(ctx context.Context, peer string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[peer] {
		return
	}
	p.busy[peer] = true
	p.wg.Go(func() {
		defer func() {
			p.mu.Lock()
			delete(p.busy, peer)
			p.mu.Unlock()
		}()
		ctx, cancel := context.WithTimeout(ctx, askPlacesWithin)
		defer cancel()
		asked := p.s.cfg.Now()
		answer, err := p.ask(ctx, peer, p.s.placesQuestion(peer))
		if err == nil {
			err = p.s.takePlaces(peer, answer, asked)
		}
		if err != nil && ctx.Err() == nil {
			p.s.cfg.Logger.Debug("SVP: a server did not say where its clients are", "peer", peer, "error", err)
		}
	})
}

// Begin notes that lookups are answered from now on. It must be called before the first
// answer, and may be called again; Events calls it too.
func (s *Shootdowns) Begin() {
	if s.began.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginLocked()
}

func (s *Shootdowns) beginLocked() {
	if !s.began.Load() {
		s.began.Store(true)
		s.known.applied.Note(s.cfg.Now(), s.state.Head().Seq)
	}
}

// noteApplied notes what is applied now. It uses the file as soon as it can, so that
// other servers learn of it before a client asks here.
func (s *Shootdowns) noteApplied() {
	s.mu.Lock()
	defer s.mu.Unlock()
	head := s.state.Head()
	if f := s.known.loaded; f != nil && f.Seq > head.Seq && !s.began.Load() {
		return // it is still reading the end of its log
	}
	s.beginLocked()
	s.sameLog(head)
	s.known.applied.Note(s.cfg.Now(), head.Seq)
	s.adoptFile()
}

// maxPlacesFile bounds the file of places that is read, in bytes: some times what
// MaxNodes nodes on a thousand vnets need.
const maxPlacesFile = 1 << 28

// errNotPlaces: something else has the name of the file of places.
var errNotPlaces = errors.New("it is no file, or larger than a file of places can be")

// sameLog forgets what is known of clients if the log is not the one of the last call:
// what was applied of the other one says nothing about this one. No client needs to ask
// for it.
func (s *Shootdowns) sameLog(head log.Cursor) {
	if !s.noted.Cluster.IsZero() && (head.Cluster != s.noted.Cluster || head.Seq < s.noted.Seq) {
		s.forgetPlaces()
	}
	s.noted = head
}

// LoadPlaces reads a file that Share of the server self wrote; it is used when the first
// client asks. A file that is missing, damaged, of another server, or that cannot be
// read, is none. It must be called before Begin.
func (s *Shootdowns) LoadPlaces(self, file string) {
	if file == "" || s.cfg.Changes != nil {
		return
	}
	f, err := readPlaces(file)
	if err == nil && f.Server != self {
		err = fmt.Errorf("it is of the server %q, and this is %q", f.Server, self)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.self = self
	switch {
	case err == nil:
		s.known.loaded = f
	case !errors.Is(err, fs.ErrNotExist):
		s.cfg.Logger.Warn("SVP: the file of places is not used: clients are told of all mappings once, after what is new", "file", file, "error", err)
	}
}

func readPlaces(file string) (*places.File, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxPlacesFile {
		return nil, errNotPlaces
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	f, err := places.DecodeFile(b)
	return &f, err
}

// adoptFile takes over the places of the file, which an earlier process of this server
// found that it may rely on, as far as this process's answers show what they include,
// and if its log is that of this server.
func (s *Shootdowns) adoptFile() {
	f := s.known.loaded
	if f == nil {
		return
	}
	head := s.cfg.Source.Head()
	if f.Cluster == head.Cluster && f.Seq > head.Seq {
		return // it is still reading the end of its log
	}
	s.known.loaded = nil
	if f.Cluster != head.Cluster {
		return
	}
	if err := hasEntry(s.cfg.Source, f.Seq, f.Chain); err != nil {
		s.cfg.Logger.Info("SVP: places of clients belong to no entry that this server has: clients are told of all mappings once, after what is new", "error", err)
		return
	}
	for i := range f.Places {
		p := f.Places[i]
		p.Seq = min(p.Seq, s.known.applied.First())
		s.adopt(p, s.has(&p))
	}
}

// savePlaces writes the file if anything changed since the last time.
func (s *Shootdowns) savePlaces(file string) {
	if file == "" {
		return
	}
	f, ok := s.placesFile()
	if !ok {
		return
	}
	next := file + ".new"
	err := os.WriteFile(next, f.Encode(), 0o600)
	if err == nil {
		err = os.Rename(next, file)
	}
	if err != nil {
		s.mu.Lock()
		s.known.dirty = true // it is tried again
		s.mu.Unlock()
		s.cfg.Logger.Warn("SVP: cannot write the places of clients: after a restart they are told of all mappings once", "file", file, "error", err)
	}
}

// placesFile returns what the file must have; false: it has it.
func (s *Shootdowns) placesFile() (f places.File, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known.dirty || s.index == nil || !s.chainKnown {
		return f, false
	}
	s.known.dirty = false
	f = places.File{Server: s.self, Cluster: s.log, Seq: s.index.seq, Chain: s.chain}
	add := func(p places.Place) {
		p.Seq = min(p.Seq, f.Seq)
		if len(p.VNets) > 0 {
			f.Places = append(f.Places, p)
		}
	}
	for cn, r := range s.readers {
		add(r.place(cn))
	}
	for cn, p := range s.known.places {
		if s.readers[cn] == nil {
			add(p.Place)
		}
	}
	return f, true
}

// AnswerPlaces answers another server's question.
func (s *Shootdowns) AnswerPlaces(question []byte) ([]byte, error) {
	q, err := places.DecodeQuestion(question)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range q.Again {
		if r := s.readers[a.CN]; r != nil && a.From >= s.index.floorSeq {
			r.giveAgain(s.index, a.From, a.To)
		}
	}
	if q.Epoch != s.known.epoch {
		q.Since = 0
	}
	answer := places.Answer{Cluster: s.state.Head().Cluster, Epoch: s.known.epoch}
	s.known.tell(&answer, q.Since, s.readers, s.cfg.Now())
	return answer.Encode(s.cfg.Now()), nil
}

// placesQuestion is what this server asks a peer next.
func (s *Shootdowns) placesQuestion(peer string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.known.asked[peer]
	q.Again = s.known.wanted(peer, s.cfg.Now())
	return q.Encode()
}

// takePlaces takes a peer's answer to a question that was sent at a time.
func (s *Shootdowns) takePlaces(peer string, answer []byte, asked time.Time) error {
	a, err := places.DecodeAnswer(answer, asked)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	head := s.state.Head()
	s.sameLog(head)
	if a.Cluster != head.Cluster {
		return nil // it is not of this log
	}
	s.known.asked[peer] = places.Question{Epoch: a.Epoch, Since: a.Until}
	if !s.began.Load() {
		delete(s.known.asked, peer) // all of it again, when it can be judged
		return nil
	}
	for _, k := range a.Acks {
		if r := s.readers[k.CN]; r != nil && r.acknowledge(k.IDs) > 0 {
			s.touch(r)
		}
	}
	for i := range a.Claims {
		s.take(peer, &a.Claims[i])
	}
	return nil
}

// take takes over what a node acknowledged to a peer, as far as this server's own
// answers allow it.
func (s *Shootdowns) take(peer string, c *places.Claim) {
	has := s.has(&c.Place)
	seq, again := s.known.applied.Accept(has, c)
	if again > 0 && seq > 0 {
		s.known.want(peer, places.Again{CN: c.CN, From: seq, To: again})
	}
	c.Seq = seq
	s.adopt(c.Place, has)
}

// has is how far the node of p has everything of p's vnets, as this server knows.
func (s *Shootdowns) has(p *places.Place) (has log.Seq) {
	if known := s.known.places[p.CN]; known != nil && known.Includes(p) {
		has = known.Seq
	}
	if r := s.readers[p.CN]; r != nil && s.index != nil {
		if own := r.place(p.CN); own.Includes(p) {
			has = max(has, own.Seq)
		}
	}
	return has
}

// adopt takes over a place on which this server may rely, if that is more than it has.
func (s *Shootdowns) adopt(p places.Place, has log.Seq) {
	if p.Seq <= has {
		return
	}
	s.known.put(p, s.cfg.MaxNodes)
	if r := s.readers[p.CN]; r != nil && len(r.nodes) == 1 && r.nodes[0] == p.Node && p.Seq >= s.index.floorSeq {
		r.has(s.index, &p)
	}
}

// delivered notes what a node was given.
func (s *Shootdowns) delivered(r *logReader, newest log.Seq) {
	now := s.cfg.Now()
	if newest > 0 {
		r.deliveries.Add(newest, now)
	} else if len(r.pending) == 0 && now.Sub(r.reported) >= tellIdle {
		s.touch(r)
	}
}

// touch notes that the others, and the file, must learn of a node.
func (s *Shootdowns) touch(r *logReader) {
	s.known.version++
	r.version, r.reported, s.known.dirty = s.known.version, s.cfg.Now(), true
}
