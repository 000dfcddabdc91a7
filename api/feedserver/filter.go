package feedserver

import (
	"errors"
	"fmt"

	"rutter/api/auth/matrix"
	"rutter/log"
	"rutter/log/feed"
)

// frameNames are the rows of frames to the CN, by type.
var frameNames = map[feed.Type]string{
	feed.TypeWelcome: "welcome", feed.TypeEntry: "entry", feed.TypeBookmark: "bookmark", feed.TypeScopeBegin: "scope_begin",
	feed.TypeObject: "object", feed.TypeScopeEnd: "scope_end", feed.TypeScopeDropped: "scope_dropped", feed.TypeReset: "reset",
	feed.TypeDrain: "drain", feed.TypePong: "pong", feed.TypeTell: "tell", feed.TypeRequest: "request",
}

// frameRights are the matrix's answers for each type of frame to one identity. They are
// looked up once per stream, and checked for each frame.
type frameRights [feed.TypeTell + 1]matrix.Decision

func rightsOf(who matrix.Identity) (a frameRights) {
	for t, name := range frameNames {
		if row := matrix.Find("feed down " + name); row != nil {
			a[t] = row.For(who)
		}
	}
	return a
}

// errWithheld: a frame was about to be sent that the CN may not see.
// Its text is sent to the subscriber, and stays as it was in package api.
var errWithheld = errors.New("api: a frame that does not concern the subscriber was not sent")

// send appends a frame to the output.
func (u *subscriber) send(m feed.Message) error {
	if !u.maySend(u.own(m)) {
		return u.withhold(m)
	}
	u.out.open()
	b, err := feed.Append(u.out.buf, m)
	if err != nil {
		return err
	}
	u.out.buf = b
	return u.out.room(0)
}

// maySend decides whether a frame may be sent to the subscriber. It is called for each
// frame. own: the frame is about what the subscriber holds, or is being sent.
func (u *subscriber) maySend(t feed.Type, own bool) bool {
	a := u.rights[t]
	return a == matrix.Allow || a == matrix.Own && own
}

// own reports whether a frame is about what the subscriber holds or is being sent.
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
	case *feed.ScopeDropped: // it names what the subscriber's hello named
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

// mine reports whether a scope is held, or is being sent because it entered the CN's
// interest.
func (u *subscriber) mine(scope log.Scope) bool {
	return scope == u.adding || u.held.has(scope)
}

// withhold records a frame that must not be sent: that is a bug, and ends the stream.
func (u *subscriber) withhold(m any) error {
	u.s.metrics.withheld.Inc()
	u.s.logger.Error("a frame was withheld: it does not concern the subscriber", "cn", u.hello.CN, "frame", fmt.Sprintf("%T", m))
	return errWithheld
}
