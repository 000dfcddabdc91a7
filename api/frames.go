package api

import (
	"errors"
	"fmt"
	"slices"

	"rutter/api/auth/matrix"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// frameNames are the rows of frames that go down, by what is sent.
var frameNames = map[feed.Type]string{
	feed.TypeWelcome: "welcome", feed.TypeEntry: "entry", feed.TypeBookmark: "bookmark", feed.TypeScopeBegin: "scope_begin",
	feed.TypeObject: "object", feed.TypeScopeEnd: "scope_end", feed.TypeScopeDropped: "scope_dropped", feed.TypeReset: "reset",
	feed.TypeDrain: "drain", feed.TypePong: "pong", feed.TypeTell: "tell", feed.TypeRequest: "request",
}

// answers are what the matrix says of each type of frame to one identity: looked
// up once for a stream, and asked for each frame.
type answers [feed.TypeTell + 1]matrix.Answer

func answersFor(who matrix.Identity) (a answers) {
	for t, name := range frameNames {
		if row := matrix.Find("feed down " + name); row != nil {
			a[t] = row.For(who)
		}
	}
	return a
}

// errWithheld: something was about to be sent that is not the subscriber's to know.
var errWithheld = errors.New("api: a frame that does not concern the subscriber was not sent")

// leaves decides whether a frame may go to the subscriber, which is asked for every
// one: own says that it is about what the subscriber holds, or is being given.
func (u *subscriber) leaves(t feed.Type, own bool) bool {
	a := u.answers[t]
	return a == matrix.Allow || a == matrix.Own && own
}

// own reports whether a frame is about what the subscriber holds or is being given.
func (u *subscriber) own(m feed.Message) (feed.Type, bool) {
	switch m := m.(type) {
	case *feed.Object:
		return feed.TypeObject, u.mine(m.Scope)
	case *feed.ScopeBegin:
		return feed.TypeScopeBegin, u.mine(m.Scope)
	case *feed.ScopeEnd:
		return feed.TypeScopeEnd, u.mine(m.Scope)
	case *feed.Bookmark:
		for _, d := range m.Digests {
			if !u.mine(d.Scope) {
				return feed.TypeBookmark, false
			}
		}
		return feed.TypeBookmark, true
	case *feed.ScopeDropped: // it names what the subscriber itself said that it holds
		return feed.TypeScopeDropped, true
	case *feed.Welcome:
		return feed.TypeWelcome, true
	case *feed.Reset:
		return feed.TypeReset, true
	case *feed.Drain:
		return feed.TypeDrain, true
	case *feed.Pong:
		return feed.TypePong, true
	case *feed.Tell:
		return feed.TypeTell, true
	case *feed.Request:
		return feed.TypeRequest, true
	}
	return 0, false
}

// mine reports whether a scope is held, or being sent because the CN came to want it.
func (u *subscriber) mine(scope log.Scope) bool {
	if scope == u.adding {
		return true
	}
	_, held := u.held[scope]
	return held
}

// withhold notes a frame that must not leave: it is a bug, and ends the stream.
func (u *subscriber) withhold(m any) error {
	u.s.metrics.withheld.Inc()
	u.s.logger.Error("a frame was withheld: it does not concern the subscriber", "cn", u.hello.CN, "frame", fmt.Sprintf("%T", m))
	return errWithheld
}

// admitted decides whether an identity may be the CN of a hello.
func (s *Server) admitted(who matrix.Identity, remote string, hello *feed.Hello) error {
	answer, refusal := matrix.Decide(who, "follow the feed of CN "+hello.CN.String(), matrix.Find("feed up hello"))
	if refusal == nil && (answer == matrix.Allow || who.UUID == hello.CN) {
		return nil
	}
	if refusal == nil {
		refusal = &matrix.Refusal{Who: who, What: "follow the feed of CN " + hello.CN.String(), Missing: "it takes the certificate of that CN"}
	}
	return s.guard.Refuse(remote, refusal)
}

// ringsFor leaves out of a CN's rings those of VMMs that the log has on another one.
func (u *subscriber) ringsFor(m *feed.Ring) *feed.Ring {
	if u.who.Role != matrix.CN {
		return m
	}
	kept := &feed.Ring{}
	u.s.store.View(func(state *projections.State, _ log.Cursor) {
		for _, id := range m.VMMs {
			rec, known := state.Get(log.KindVMM, id.String())
			if !known || rec.Object.(*log.VMM).SledID == u.who.UUID {
				kept.VMMs = append(kept.VMMs, id)
			}
		}
	})
	if n := len(m.VMMs) - len(kept.VMMs); n > 0 {
		_ = u.s.guard.Refuse(u.session.remote, &matrix.Refusal{Who: u.who, What: fmt.Sprintf("ring for %d VMMs", n), Missing: "they are on other CNs"})
	}
	return kept
}

// leaves adds the scopes that a CN's own NIC may have left with an event.
func leaves(it *item, left []log.Scope) []log.Scope {
	if it.event.Kind != log.KindNIC || it.event.Action == log.Create {
		return left
	}
	for _, scope := range it.event.Scopes {
		if (scope.Type == log.ScopeVNet || scope.Type == log.ScopeNetwork) && !slices.Contains(left, scope) {
			left = append(left, scope)
		}
	}
	return left
}

// maxReturn is how many entries are looked through for a return; in more there
// may be one.
const maxReturn = 4 * readItems

// returned reports whether, between the place and the head of a look, a NIC of the
// CN came to one of the scopes that it may have left at the place: then it cannot
// be told from the state at the head whether the CN was there all the time.
func (u *subscriber) returned(left []log.Scope, head log.Seq) bool {
	if head > u.place+maxReturn {
		return true
	}
	for at := u.place; at < head; {
		items, err := u.s.tail.after(at)
		if err != nil || len(items) == 0 {
			return true // what cannot be read may be it
		}
		for _, it := range items {
			at = it.entry.Seq
			mine := it.event.Kind == log.KindNIC && slices.Contains(it.event.Scopes, log.CNScope(u.hello.CN))
			if mine && slices.ContainsFunc(it.event.Scopes, func(scope log.Scope) bool { return slices.Contains(left, scope) }) {
				return true
			}
		}
	}
	return false
}

// doubtful reports whether a scope that a CN with a name of its own says it holds
// may be one that it had no business with all the time since its cursor: a NIC of
// it came or went there. Such a scope is told anew.
//
// Beyond maxReturn entries it is believed, and docs/security.md says what a CN that
// lies can learn by that: the past, since the floor, of vnets whose present is its to
// know; of others nothing, since the interest is the log's word. To doubt there too
// would cost the honest ones: after an outage all CNs come at once from further
// back, and were sent whole scopes, of which MaxSnapshots go out at a time, in place
// of the entries that all share.
func (u *subscriber) doubtful(scope log.Scope) bool {
	if u.who.Role != matrix.CN || scope.Type != log.ScopeVNet && scope.Type != log.ScopeNetwork {
		return false
	}
	_, held := u.held[scope]
	return held && u.pinned > u.place && u.pinned <= u.place+maxReturn && u.returned([]log.Scope{scope}, u.pinned)
}
