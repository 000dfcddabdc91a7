package answer

import (
	"sync/atomic"
)

// Kind says what was answered. It is the value of the label kind in metrics.
type Kind string

// The kinds of answers.
const (
	KindARP       Kind = "arp"
	KindNeighbour Kind = "nd"
	KindRouter    Kind = "router"          // router advertisements, also those without a request
	KindOffer     Kind = "dhcp_offer"      // of DHCPv4, as the next ones
	KindAck       Kind = "dhcp_ack"        // a lease
	KindNak       Kind = "dhcp_nak"        // the guest asked for an address that is not its own
	KindInform    Kind = "dhcp_inform"     // options without a lease
	KindAdvertise Kind = "dhcp6_advertise" // of DHCPv6, as the next one
	KindReply     Kind = "dhcp6_reply"
)

// Kinds are all kinds of answers.
var Kinds = []Kind{KindARP, KindNeighbour, KindRouter, KindOffer, KindAck, KindNak, KindInform, KindAdvertise, KindReply}

// Counters is what the answerer did since it was made.
type Counters struct {
	Answered map[Kind]uint64 // frames sent; each of Kinds has an entry
	// Unanswered counts requests of ARP and ND for an address that no NIC of the asker's
	// network has, by the name of the segment's bridge. It has the segments of now.
	Unanswered map[string]uint64
	Unknown    uint64 // the same, of all segments that were
	Malformed  uint64 // requests that break their protocol
	Strangers  uint64 // requests of a MAC without a port on its bridge, or without a NIC in the log
	Limited    uint64 // requests above MaxRequests of a port
	Released   uint64 // DHCP: addresses that guests gave back; the log keeps them
	Declined   uint64 // DHCP: addresses that guests found in use
	Shortened  uint64 // DHCP: answers without room for all routes or resolvers
	Unsent     uint64 // answers that the kernel did not take
	Lost       uint64 // requests for which a socket had no room
	Failed     uint64 // times that a socket failed, or could not be opened
	Sockets    int    // that are open
}

// tally has the counters of all segments.
type tally struct {
	answered                                                   [16]atomic.Uint64 // by place in Kinds
	unknown, malformed, strangers, limited, released, declined atomic.Uint64
	shortened, unsent, lost, failed                            atomic.Uint64
	sockets                                                    atomic.Int64
}

// answer counts answers of a kind.
func (t *tally) answer(kind Kind) {
	for i, k := range Kinds {
		if k == kind {
			t.answered[i].Add(1)
		}
	}
}

// Counters returns a snapshot. Any goroutine may call it.
func (a *Answerer) Counters() Counters {
	t := &a.tally
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.readers {
		if s := r.socket.Load(); s != nil {
			t.lost.Add(s.lost())
		}
	}
	c := Counters{
		Answered: make(map[Kind]uint64, len(Kinds)), Unanswered: map[string]uint64{},
		Unknown: t.unknown.Load(), Malformed: t.malformed.Load(), Strangers: t.strangers.Load(), Limited: t.limited.Load(), Released: t.released.Load(),
		Declined: t.declined.Load(), Shortened: t.shortened.Load(), Unsent: t.unsent.Load(), Lost: t.lost.Load(),
		Failed: t.failed.Load(), Sockets: int(t.sockets.Load()),
	}
	for i, k := range Kinds {
		c.Answered[k] = t.answered[i].Load()
	}
	for _, r := range a.readers {
		c.Unanswered[r.segment.Name] += r.unanswered.Load()
	}
	return c
}
