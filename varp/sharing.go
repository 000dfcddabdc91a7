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
	if err := s.LoadPlaces(sharing.File); err != nil {
		return err
	}
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

func (s *Shootdowns) noteApplied() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began.Load() {
		s.known.applied.Note(s.cfg.Now(), s.state.Head().Seq)
	}
}

// LoadPlaces reads a file that Share wrote; it is used when the first client asks. A
// file that is missing or damaged is none. It must be called before Begin.
func (s *Shootdowns) LoadPlaces(file string) error {
	if file == "" || s.cfg.Changes != nil {
		return nil
	}
	b, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("varp: places of SVP's clients: %w", err)
	}
	f, err := places.DecodeFile(b)
	if err != nil {
		s.cfg.Logger.Warn("SVP: the file of places is damaged: clients are told of all mappings once, after what is new", "file", file, "error", err)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.loaded = &f
	return nil
}

// adoptFile takes over the places of the file, as far as this server's answers since
// its start show what they include, and if its log is that of this server.
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
		s.take("", &places.Claim{Place: f.Places[i], Deliveries: places.Deliveries{{Newest: f.Places[i].Seq}}})
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
	f = places.File{Cluster: s.log, Seq: s.index.seq, Chain: s.chain}
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
	if a.Cluster != s.state.Head().Cluster {
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
	r, has := s.readers[c.CN], log.Seq(0)
	if p := s.known.places[c.CN]; p != nil && p.Includes(&c.Place) {
		has = p.Seq
	}
	if r != nil && s.index != nil {
		if p := r.place(c.CN); p.Includes(&c.Place) {
			has = max(has, p.Seq)
		}
	}
	seq, again := s.known.applied.Accept(has, c)
	if again > 0 && has > 0 {
		s.known.want(peer, places.Again{CN: c.CN, From: seq, To: again})
	}
	if seq <= has {
		return
	}
	c.Seq = seq
	s.known.put(c.Place, s.cfg.MaxNodes)
	if r != nil && len(r.nodes) == 1 && r.nodes[0] == c.Node && seq >= s.index.floorSeq {
		r.has(s.index, &c.Place)
	}
}

// delivered notes what a node was given.
func (s *Shootdowns) delivered(r *logReader, newest log.Seq) {
	now := s.cfg.Now()
	if newest > 0 {
		r.deliveries.Add(newest, now)
	} else if len(r.pending) == 0 && now.Sub(r.told) >= tellIdle {
		s.touch(r)
	}
}

// touch notes that the others, and the file, must learn of a node.
func (s *Shootdowns) touch(r *logReader) {
	s.known.version++
	r.version, r.told, s.known.dirty = s.known.version, s.cfg.Now(), true
}
