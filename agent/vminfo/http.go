package vminfo

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmstore"
)

// listener is one client that follows /events.
type listener struct {
	userAgent string
	created   time.Time
	sent      uint64 // seq of the last event written; Service.mu protects it
	limited   bool   // it sees the public fields only
}

// Handler serves the VMs as vminfod does on 127.0.0.1:9090 (spec/vminfod.md,
// 5.1). In addition, which old clients do not ask for and do not see:
//
//	/events?after=SEQ&log=ID   the events after SEQ of the log ID, which stand in
//	                           the ready line and in each event. Where they are
//	                           not kept any more, a ready line begins anew, and
//	                           its "reset" says why.
//	/scan                      a full scan now
//
// A listener that reads slower than the store forgets gets a line of type "lost" (only
// if it gave after or log, because an old client cannot read that line), and its stream
// ends early.
//
// A client that Config.Allow does not allow gets the public fields of VMs (vmdoc.Public),
// events about these fields only, and a status with counts only. /scan is refused to it
// with 403. A client that is unknown gets 403 for VMs and events too: it may be one that
// needs all fields, and must not take those that are hidden for removed.
func (s *Service) Handler() http.Handler { return http.HandlerFunc(s.handle) }

func (s *Service) handle(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodGet {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	parts := strings.Split(strings.TrimPrefix(path.Clean(r.URL.EscapedPath()), "/"), "/")
	limited, unknown := s.access(r)
	if limited {
		w.Header().Set(vmdoc.LimitedHeader, "true")
	}
	if unknown && (parts[0] == "vms" || parts[0] == "events") {
		w.WriteHeader(http.StatusForbidden)
		write(w, []byte(notKnown))
		return
	}
	switch parts[0] {
	case "ping":
		write(w, []byte(`{"ping":"pong"}`))
	case "status":
		if limited {
			write(w, s.countsJSON())
			return
		}
		write(w, s.statusJSON(r.URL.Query().Get("full") != ""))
	case "vms":
		if len(parts) > 1 && parts[1] != "" {
			s.serveVM(w, parts[1], limited)
			return
		}
		s.serveVMs(w, limited)
	case "events":
		s.serveEvents(w, r, limited)
	case "scan":
		if limited {
			w.WriteHeader(http.StatusForbidden)
			write(w, []byte(notAllowed))
			return
		}
		s.scan()
		write(w, []byte(`{"scan":"begun"}`))
	default:
		w.WriteHeader(http.StatusNotFound)
		write(w, []byte("Unsupported URL Path"))
	}
}

// write sends an answer. An error means that the client has gone; it is ignored.
func write(w http.ResponseWriter, text []byte) { _, _ = w.Write(text) }

func (s *Service) serveVM(w http.ResponseWriter, name string, limited bool) {
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	vm, ok := s.store.Find(name)
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		write(w, []byte("VM Not Found: "+name))
		return
	}
	write(w, textOf(vm, limited))
}

// textOf returns what a client may see of a VM.
func textOf(vm vmdoc.VM, limited bool) []byte {
	if limited {
		return vm.Public
	}
	return vm.JSON
}

func (s *Service) serveVMs(w http.ResponseWriter, limited bool) {
	vms, _ := s.store.List()
	size := 2
	for _, vm := range vms {
		size += len(textOf(vm, limited)) + 1
	}
	w.Header().Set("Content-Length", strconv.Itoa(max(2, size-min(1, len(vms)))))
	out := bufio.NewWriterSize(w, 64<<10)
	_ = out.WriteByte('[') // the writer keeps its first error, which concerns the client only
	for i, vm := range vms {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		_, _ = out.Write(textOf(vm, limited))
	}
	_ = out.WriteByte(']')
	_ = out.Flush()
}

// errTooSlow ends the stream of a listener that fell behind the kept events.
var errTooSlow = errors.New("vminfo: a listener was slower than its events")

func (s *Service) serveEvents(w http.ResponseWriter, r *http.Request, limited bool) {
	query := r.URL.Query()
	id := vmstore.NewID()
	if !s.join(id, r.UserAgent(), limited) {
		w.WriteHeader(http.StatusServiceUnavailable)
		write(w, []byte("Too Many Listeners"))
		return
	}
	defer s.leave(id)
	control := http.NewResponseController(w)
	stream := &eventStream{service: s, id: id, w: w, control: control, limited: limited}
	seq, err := stream.begin(query)
	if err == nil {
		err = stream.follow(r.Context(), seq)
	}
	if errors.Is(err, errTooSlow) {
		s.mu.Lock()
		s.lost++
		s.mu.Unlock()
		s.cfg.Logger.Warn("a listener of VM events was too slow, its stream ends", "listener", id, "agent", r.UserAgent(), "error", err)
		if query.Has("after") || query.Has("log") {
			_ = stream.write([]byte(`{"type":"lost","date":"`+vmdoc.FormatDate(s.store.Cfg.Now())+`","reason":"slower than the events, which are not kept for ever: begin anew"}`+"\n"), true)
		}
	}
	if r.Context().Err() == nil || errors.Is(err, errTooSlow) {
		// Old clients treat an orderly end as an error as well, but HTTP libraries that
		// hide it must not: so the last chunk is not sent.
		panic(http.ErrAbortHandler)
	}
}

func (s *Service) join(id, userAgent string, limited bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listeners) >= s.cfg.Listeners || limited && s.limited >= maxLimited {
		s.refused++
		return false
	}
	if limited {
		s.limited++
	}
	s.listeners[id] = &listener{userAgent: userAgent, created: s.store.Cfg.Now(), limited: limited}
	return true
}

func (s *Service) leave(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners[id].limited {
		s.limited--
	}
	delete(s.listeners, id)
}

// eventStream writes to one listener.
type eventStream struct {
	service *Service
	id      string
	w       http.ResponseWriter
	control *http.ResponseController
	limited bool // it sees the public fields only
}

func (e *eventStream) write(text []byte, flush bool) error {
	// Not every writer has deadlines; a real connection has.
	_ = e.control.SetWriteDeadline(time.Now().Add(e.service.cfg.WriteTimeout))
	if _, err := e.w.Write(text); err != nil {
		return err
	}
	if !flush {
		return nil
	}
	return e.control.Flush()
}

// begin writes the first line, and returns the seq after which events follow.
func (e *eventStream) begin(query url.Values) (uint64, error) {
	reset := ""
	if query.Has("after") {
		seq, err := strconv.ParseUint(query.Get("after"), 10, 64)
		switch {
		case err != nil:
			reset = "after is no number"
		case query.Get("log") != e.service.store.ID():
			reset = "another log"
		default:
			if _, _, err = e.service.store.Since(seq, 0); err == nil {
				e.sent(seq)
				return seq, e.writeResumed(seq)
			}
			reset = err.Error()
		}
	}
	return e.writeReady(reset)
}

func (e *eventStream) writeResumed(seq uint64) error {
	b := append([]byte(`{"type":"resumed","date":"`), vmdoc.FormatDate(e.service.store.Cfg.Now())...)
	b = vmdoc.AppendString(append(b, `","uuid":`...), e.id)
	b = strconv.AppendUint(append(b, `,"seq":`...), seq, 10)
	b = vmdoc.AppendString(append(b, `,"log":`...), e.service.store.ID())
	return e.write(append(b, "}\n"...), true)
}

// writeReady writes the ready line of the original: the array of VMs as a string, so
// that it is encoded twice. It is written in pieces, because with many VMs it is long.
func (e *eventStream) writeReady(reset string) (uint64, error) {
	vms, seq := e.service.store.List()
	out := bufio.NewWriterSize(writerFunc(func(b []byte) (int, error) { return len(b), e.write(b, false) }), 64<<10)
	b := append([]byte(`{"type":"ready","date":"`), vmdoc.FormatDate(e.service.store.Cfg.Now())...)
	b = vmdoc.AppendString(append(b, `","uuid":`...), e.id)
	b = append(b, `,"vms":"[`...)
	for i, vm := range vms {
		if i > 0 {
			b = append(b, ',')
		}
		b = vmdoc.AppendEscaped(b, textOf(vm, e.limited))
		_, _ = out.Write(b) // the writer keeps its first error
		b = b[:0]
	}
	b = append(b, `]"`...)
	b = strconv.AppendUint(append(b, `,"seq":`...), seq, 10)
	b = vmdoc.AppendString(append(b, `,"log":`...), e.service.store.ID())
	if reset != "" {
		b = vmdoc.AppendString(append(b, `,"reset":`...), reset)
	}
	_, _ = out.Write(append(b, "}\n"...))
	if err := out.Flush(); err != nil {
		return 0, err
	}
	e.sent(seq)
	return seq, e.write(nil, true)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func (e *eventStream) follow(ctx context.Context, seq uint64) error {
	for {
		events, changed, err := e.service.store.Since(seq, vmstore.EventBatch)
		if err != nil {
			return errors.Join(errTooSlow, err)
		}
		for _, event := range events {
			line := event.Line
			if e.limited {
				line = event.Public
			}
			if err := e.write(line, false); err != nil {
				return slowWrite(err)
			}
			seq = event.Seq
		}
		if len(events) > 0 {
			if err := e.write(nil, true); err != nil {
				return slowWrite(err)
			}
			e.sent(seq)
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *eventStream) sent(seq uint64) {
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	if l := e.service.listeners[e.id]; l != nil {
		l.sent = seq
	}
}

// slowWrite reports that a write timed out because the listener is slow.
func slowWrite(err error) error {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errors.Join(errTooSlow, err)
	}
	return err
}
