package serviceaddr

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// roundTime is how long answers of one probe are awaited.
	roundTime = 40 * time.Millisecond
	// lookLinkEvery is the time between two looks at the link.
	lookLinkEvery = time.Second
	// retryAfter is the time after a refusal of the kernel until the next attempt.
	retryAfter = time.Second
	// defendEvery is the least time between two announcements because another machine
	// claims the address (DEFEND_INTERVAL of RFC 5227).
	defendEvery = 10 * time.Second
)

// announceAt are the times after a take at which the address is announced: the first ones
// for caches of hosts, the later ones for switches that begin to forward only then.
var announceAt = []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second}

// keeper keeps one address. It is for the goroutine of Service.Run.
type keeper struct {
	service *Service
	holder  Holder
	state   State

	link     link
	looked   time.Time // at the link
	unusable time.Time // since when it cannot carry the address; zero: it can
	segment  *segment  // nil: none is open
	blocked  error     // why this machine's own addresses forbid a take

	retry     time.Time // not set before, because the kernel refused it
	round     *round    // under way
	announced int       // of announceAt
	taken     time.Time
	defended  time.Time
	claimed   string // MAC of the machine that last claimed the address
}

// round is a probe under way.
type round struct {
	Round
	waits map[netip.Addr]bool // members that have not answered
}

// step does what the holder wants.
func (k *keeper) step(l Leadership, others []string) {
	held := k.holder.Held()
	action := k.holder.Step(l)
	k.state.Probing = action == Probe
	if action == Drop {
		k.drop("it leads no more, or cannot prove it")
	}
	if !l.Elected {
		k.closeSegment()
		k.unusable, k.looked = time.Time{}, time.Time{}
		k.warn("")
		k.problem(nil)
		return
	}
	if err := k.openSegment(l.Now); err != nil {
		if k.holder.Held() {
			k.holder.WasLost()
			k.drop(err.Error())
		}
		k.problem(err)
		return
	}
	k.receive()
	if k.blocked != nil && !k.holder.Held() {
		k.problem(k.blocked)
		return
	}
	switch action {
	case Probe:
		k.probe(l, others)
	case Set:
		if !l.Now.Before(k.retry) {
			k.set(held)
		}
	}
	if k.holder.Held() {
		k.announce()
	}
}

// problem notes what is wrong, and logs it when that changes.
func (k *keeper) problem(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == k.state.Problem {
		return
	}
	if k.state.Problem = text; text != "" {
		k.service.cfg.Logger.Error("a service address cannot be kept", "address", k.state.Address, "error", err)
	}
}

// warn notes what does not keep this server from having the address, and logs it when
// that changes.
func (k *keeper) warn(text string) {
	if text != "" && text != k.state.Warning {
		k.service.cfg.Logger.Warn("a service address may be of no use", "address", k.state.Address, "because", text)
	}
	k.state.Warning = text
}

// openSegment looks at the link, and opens the socket on it.
func (k *keeper) openSegment(now time.Time) error {
	if k.segment != nil && now.Sub(k.looked) < lookLinkEvery {
		return nil
	}
	k.looked = now
	l, err := lookLink(k.state.Address.Link)
	if err == nil && k.segment != nil && (l.index != k.link.index || l.mac.String() != k.link.mac.String()) {
		k.closeSegment() // another link with this name
	}
	if err == nil && k.segment == nil {
		k.segment, err = openSegment(l)
	}
	if err != nil {
		k.closeSegment()
		if k.unusable.IsZero() {
			k.unusable = now
		}
		return err
	}
	k.link, k.unusable = l, time.Time{}
	k.warn(misplaced(k.state.Address))
	if !k.holder.Held() {
		k.blocked = k.clearLeftovers()
	}
	return nil
}

func (k *keeper) closeSegment() {
	if k.segment != nil {
		_ = k.segment.close()
	}
	k.segment, k.round = nil, nil
}

// receive takes what others say about the address and about themselves.
func (k *keeper) receive() {
	err := k.segment.receive(func(ip netip.Addr, mac net.HardwareAddr) {
		if k.round != nil {
			delete(k.round.waits, ip)
		}
		if ip != k.state.Address.IP() {
			return
		}
		k.claimed = mac.String()
		if k.round != nil {
			k.round.Answered = true
		}
		if k.holder.Held() {
			k.defend()
		}
	})
	if err != nil {
		k.closeSegment()
	}
}

// defend answers a machine that claims the address that is held here.
func (k *keeper) defend() {
	k.state.Claims++
	if time.Since(k.defended) < defendEvery {
		return
	}
	k.defended = time.Now()
	k.service.cfg.Logger.Error("another machine claims the service address that this server holds", "address", k.state.Address, "mac", k.claimed)
	_ = k.segment.announce(k.state.Address.IP())
}

// probe ends the round that is under way, if its time is over, and begins the next.
func (k *keeper) probe(l Leadership, others []string) {
	if k.segment == nil || k.round != nil && l.Now.Sub(k.round.Begun) < roundTime {
		return
	}
	if k.round != nil {
		k.round.Complete = len(k.round.waits) == 0
		k.holder.Probed(k.round.Round, l.Now)
		k.round = nil
		if k.holder.Foreign() {
			k.problem(fmt.Errorf("the machine with MAC %s has this address and is no holder: take the address away from it; this server tries on", k.claimed))
		}
	}
	r := &round{waits: make(map[netip.Addr]bool)}
	for _, peer := range others {
		r.waits[k.service.addressOf(peer)] = true
	}
	r.Begun = time.Now()
	// The address first: a kernel that answers for itself after it has had its time to
	// answer for the address too.
	err := k.segment.probe(k.state.Address.IP())
	for ip := range r.waits {
		if ip.IsValid() && err == nil {
			err = k.segment.probe(ip)
		}
	}
	if err != nil {
		k.problem(fmt.Errorf("probe: %w", err))
		k.closeSegment()
		return
	}
	k.round = r
}

// set sets the address, or renews it.
func (k *keeper) set(renew bool) {
	if !renew {
		if err := k.clearLeftovers(); err != nil {
			k.retry = time.Now().Add(retryAfter)
			k.problem(err)
			return
		}
	}
	done := k.service.asking()
	begun := time.Now()
	err := k.service.kernel.set(k.state.Address, k.link.index, renew, func() bool { return k.holder.May(time.Now()) })
	after, _ := k.service.leadership()
	done()
	switch {
	case errors.Is(err, errLate):
		return
	case err != nil:
		k.refused(err)
		return
	case !k.holder.WasSet(begun, after):
		k.state.Late++
		_ = k.delete() // before anything that takes time
		k.drop("it was set too late: this process was stopped, or the machine is overloaded")
		return
	}
	k.problem(nil)
	if renew {
		k.state.Renewals++
		return
	}
	k.state.Takes++
	k.taken, k.announced = begun, 0
	k.service.cfg.Logger.Info("service address taken", "address", k.state.Address, "term", after.Term, "elected_ago", begun.Sub(k.holder.since))
}

// refused takes that the kernel did not set the address, or did not say so in time.
func (k *keeper) refused(err error) {
	k.state.Failures++
	k.retry, k.looked = time.Now().Add(retryAfter), time.Time{}
	if k.holder.Held() {
		k.holder.WasLost()
		k.drop("the kernel refused it")
	} else {
		_ = k.delete() // it may have been set all the same
	}
	k.problem(fmt.Errorf("the kernel did not take it: %w; the server needs CAP_NET_ADMIN", err))
	var errno unix.Errno
	if !errors.As(err, &errno) { // the answer may come yet: to a socket that is not used any more
		k.service.closeKernel()
	}
}

// announce sends the announcements that are due.
func (k *keeper) announce() {
	for k.announced < len(announceAt) && time.Since(k.taken) >= announceAt[k.announced] {
		k.announced++
		if err := k.segment.announce(k.state.Address.IP()); err != nil {
			k.service.cfg.Logger.Warn("a service address was not announced", "address", k.state.Address, "error", err)
		}
	}
}

// drop ends the connections at the address and deletes it.
func (k *keeper) drop(why string) {
	// First those that are told so by this address, then those that came meanwhile.
	ip := k.state.Address.IP()
	n, ending := endConnections(ip)
	err := k.delete()
	more, again := endConnections(ip)
	k.state.Losses++
	if err = errors.Join(err, ending, again); err != nil {
		k.state.Failures++
		k.service.cfg.Logger.Error("a service address is left to end by itself", "address", k.state.Address, "error", err)
	}
	k.service.cfg.Logger.Info("service address dropped", "address", k.state.Address, "because", why, "connections", n+more)
}

// delete deletes the address from the kernel.
func (k *keeper) delete() error {
	defer k.service.asking()()
	return k.service.kernel.drop(k.state.Address, k.link.index)
}

// clearLeftovers deletes the address if an earlier process of this program has set it.
// The error is errForeign if another program has.
func (k *keeper) clearLeftovers() error {
	all, err := k.service.kernel.find(k.state.Address.IP())
	if err != nil {
		return err
	}
	for _, f := range all {
		switch {
		case f.ours():
			if err := k.service.kernel.drop(k.state.Address, f.index); err != nil {
				return err
			}
			k.service.cfg.Logger.Info("a service address that an earlier process left was deleted", "address", k.state.Address)
		case f.ends():
			return errors.New("an address without a mark ends in a second: it waits for that")
		default:
			return errForeign
		}
	}
	return nil
}

// end deletes the address if it is held.
func (k *keeper) end() {
	if k.holder.Held() && k.service.kernel != nil {
		k.drop("this server stops")
	}
	k.holder = Holder{}
	k.closeSegment()
}
