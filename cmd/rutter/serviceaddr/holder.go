package serviceaddr

import "time"

// Times of the protocol. DESIGN.md derives them, and has what was measured.
const (
	// Fresh is the greatest age of the proof of leadership when the kernel has set the
	// address. A message to the kernel begins at sendFresh at the latest.
	Fresh     = 200 * time.Millisecond
	sendFresh = 150 * time.Millisecond
	// Lifetime is how long the kernel keeps the address after it was set: the kernel
	// counts whole seconds, and 1 is the least.
	Lifetime = time.Second
	// DropAfter is the age of the proof at which a holder that runs deletes the address,
	// before its kernel does.
	DropAfter = Lifetime
	// renewEvery is the time between two renewals.
	renewEvery = 200 * time.Millisecond
	// guard covers a kernel whose work is late, and clocks of different rates.
	guard = 150 * time.Millisecond
	// SeenGone is the time after an election from which on probes count. No former holder
	// sets the address any more: an address that is gone then stays gone.
	SeenGone = Fresh + guard
	// kernelLate bounds how long after its Lifetime the kernel has an address at most
	// (ADDRCONF_TIMER_FUZZ_MAX, linux/include/net/addrconf.h: 1 s between two checks; the
	// rest is for a machine whose processors have other work).
	kernelLate = 1500 * time.Millisecond
	// BlindWait is the time after an election from which on a former holder has lost the
	// address, also if it cannot be seen on the link.
	BlindWait = Fresh + Lifetime + kernelLate + guard
	// silentRounds is how many probes in a row must show that the address is free
	// (PROBE_NUM of RFC 5227).
	silentRounds = 3
	// clashAfter is the time after BlindWait from which on a holder of the address is
	// reported as a foreign one.
	clashAfter = 500 * time.Millisecond
)

// Leadership is what a server knows at a time about leading.
type Leadership struct {
	Now time.Time // monotonic
	// Elected says that raft holds this server for the leader of Term.
	Elected bool
	// Serves says that it also takes changes and serves clients.
	Serves bool
	Term   uint64
	// Proved is a time at which no later leader was elected; zero: none is known.
	Proved time.Time
}

// Action is what a Holder wants.
type Action int

// The actions.
const (
	Rest Action = iota
	// Probe the link, and report the result to Probed.
	Probe
	// Set the address in the kernel with Lifetime, if May still says so at that moment.
	Set
	// Drop the address.
	Drop
)

// Round is the result of one probe of the link.
type Round struct {
	Begun time.Time // before the probe was sent
	// Answered says that another machine has the address.
	Answered bool
	// Complete says that the kernels of all other members answered on the link. If not,
	// silence proves nothing about them.
	Complete bool
}

// Holder decides when one server has one service address. Two servers never have it at
// the same time, as long as the times above hold for the kernels.
type Holder struct {
	term    uint64    // in which this server is elected; 0: it is not
	since   time.Time // it was known to be elected in term
	proved  time.Time // latest proof in term
	cleared bool      // no other server can have the address before a later term
	held    bool      // it is set, as far as this server knows
	set     time.Time // begin of the last message that set it
	silent  int       // complete rounds in a row without an answer
	free    int       // rounds in a row without an answer
	foreign bool      // another machine answered, when no server can have it
}

// Held reports whether this server has the address by what it has done.
func (h *Holder) Held() bool { return h.held }

// Foreign reports whether the address was last answered by a machine that is no server.
func (h *Holder) Foreign() bool { return h.foreign }

// Step takes new knowledge and returns what to do.
func (h *Holder) Step(l Leadership) Action {
	if !l.Elected || l.Term != h.term {
		was := h.held
		*h = Holder{}
		if l.Elected {
			h.term, h.since = l.Term, l.Now
		}
		if was {
			return Drop
		}
	}
	if !l.Elected {
		return Rest
	}
	if l.Proved.After(h.proved) {
		h.proved = l.Proved
	}
	age := l.Now.Sub(h.proved)
	if h.held && (!l.Serves || age >= DropAfter) {
		h.held = false
		return Drop
	}
	switch {
	case h.held && l.Now.Sub(h.set) < renewEvery:
		return Rest
	case h.held:
		return h.setIfFresh(l.Now)
	case h.cleared && l.Serves:
		return h.setIfFresh(l.Now)
	case h.cleared || l.Now.Sub(h.since) < SeenGone:
		return Rest
	}
	return Probe
}

func (h *Holder) setIfFresh(now time.Time) Action {
	if !h.May(now) {
		return Rest
	}
	return Set
}

// May reports whether a message that sets the address may go to the kernel at now. It is
// asked immediately before the message, because the process may have been stopped since
// Step.
func (h *Holder) May(now time.Time) bool {
	return h.term != 0 && h.cleared && !h.proved.IsZero() && now.Sub(h.proved) <= sendFresh
}

// WasSet reports that the kernel took the address, by a message that began at begun, and
// what is known of leading after it. It returns false if that is too late: then the
// address must be deleted at once, because the process may have been stopped between May
// and the message.
func (h *Holder) WasSet(begun time.Time, after Leadership) (ok bool) {
	if after.Elected && after.Term == h.term && after.Proved.After(h.proved) {
		h.proved = after.Proved
	}
	h.held, h.set = after.Now.Sub(h.proved) <= Fresh, begun
	return h.held
}

// WasLost reports that the kernel does not have the address.
func (h *Holder) WasLost() { h.held = false }

// Probed takes the result of a probe that ended at now.
func (h *Holder) Probed(r Round, now time.Time) {
	if h.term == 0 || r.Begun.Sub(h.since) < SeenGone {
		return
	}
	switch {
	case r.Answered:
		h.silent, h.free = 0, 0
		h.foreign = now.Sub(h.since) >= BlindWait+clashAfter
		return
	case r.Complete:
		h.silent++
	default:
		h.silent = 0
	}
	h.free++
	if h.silent >= silentRounds || h.free >= silentRounds && r.Begun.Sub(h.since) >= BlindWait {
		h.cleared, h.foreign = true, false
	}
}
