package history

import (
	"strconv"
	"time"
)

// This file has what scenes are made of: who a fault is on, and its number.

// where draws the ends of a fault.
type where func(g *generator) (on, to string)

func servers(g *generator) (on, to string) { return g.server(), "" }

func agents(g *generator) (on, to string) { return g.agent(), "" }

func nobody(*generator) (on, to string) { return "", "" }

// pairs are two servers, in any order.
func pairs(g *generator) (on, to string) {
	on = g.server()
	for to = on; to == on; {
		to = g.server()
	}
	return on, to
}

// agentToServer is an agent or a client, and a server, in any order.
func agentToServer(g *generator) (on, to string) {
	on, to = g.agent(), g.server()
	if g.chance(25) {
		on = g.client()
	}
	if g.chance(50) {
		return to, on
	}
	return on, to
}

func (g *generator) server() string { return "s" + strconv.Itoa(1+g.rng.IntN(g.h.Servers)) }
func (g *generator) agent() string  { return "cn" + strconv.Itoa(1+g.rng.IntN(g.h.Agents)) }
func (g *generator) client() string { return "c" + strconv.Itoa(1+g.rng.IntN(g.h.Clients)) }

// one is a scene of one fault, which lasts from least to most.
func one(kind Kind, on where, least, most time.Duration) scene {
	return func(g *generator) {
		f := Fault{Kind: kind, For: g.lasting(least, most), N: g.number(kind)}
		f.On, f.To = on(g)
		f.At = g.at(f.For)
		g.add(f)
	}
}

// number draws N.
func (g *generator) number(kind Kind) int64 {
	switch kind {
	case Power:
		return g.scaled(1, 400)
	case Older:
		return 5 + g.rng.Int64N(2) // the two versions before today's (log.FeatureDeclared)
	case Slow:
		return g.scaled(2, 600)
	case Lossy:
		return g.scaled(1, 60)
	case SlowSync:
		return g.scaled(1, 300)
	case Full:
		return g.scaled(0, 1<<20)
	case Rot:
		return g.scaled(1, 64)
	case Skew:
		return g.sign() * g.scaled(20, 2*hour)
	case Drift:
		return g.sign() * g.scaled(50, 200_000)
	case Retain:
		return g.scaled(5, 400)
	case Meddle:
		return g.scaled(1, 10)
	case Refuse:
		return g.scaled(5, 95)
	case Spoil:
		return 1 + g.rng.Int64N(Spoils)
	}
	return 0
}

func (g *generator) sign() int64 {
	if g.chance(50) {
		return -1
	}
	return 1
}

// together adds faults of one kind on all servers, the i-th after delays of the i-th.
func (g *generator) together(kind Kind, at, last time.Duration, delay func(i int) time.Duration) {
	var all []Fault
	for i := range g.h.Servers {
		all = append(all, Fault{Kind: kind, On: "s" + strconv.Itoa(i+1), At: at + delay(i), For: last, N: g.number(kind)})
	}
	g.add(all...)
}

// blackout ends all servers within a tenth of a second.
func blackout(kind Kind) scene {
	return func(g *generator) {
		last := g.lasting(300*ms, 5*sec)
		g.together(kind, g.at(last+sec), last, func(int) time.Duration { return time.Duration(g.rng.IntN(100)) * ms })
	}
}

// slowBlackout is a blackout while each operation on a disk takes long: else almost everything is
// on disk when the power fails, because simulated time stands still while a disk works.
func slowBlackout(g *generator) {
	last := g.lasting(300*ms, 5*sec)
	at, each := g.at(last+6*sec), 20+g.scaled(1, 300)
	var all []Fault
	for i := range g.h.Servers {
		on := "s" + strconv.Itoa(i+1)
		all = append(all, Fault{Kind: SlowSync, On: on, At: at, For: 4 * sec, N: each},
			Fault{Kind: Power, On: on, At: at + 2*sec + time.Duration(g.rng.IntN(300))*ms, For: last, N: 1})
	}
	g.add(all...)
}

// everywhere is the same trouble at all servers.
func everywhere(kind Kind) scene {
	return func(g *generator) {
		last := g.lasting(1*sec, 8*sec)
		g.together(kind, g.at(last), last, func(int) time.Duration { return 0 })
	}
}

// rolling does something to one server after the other, as an upgrade does.
func rolling(kind Kind) scene {
	return func(g *generator) {
		last := g.lasting(500*ms, 3*sec)
		gap := last + KillSlack + g.lasting(100*ms, 3*sec)
		g.together(kind, g.at(time.Duration(g.h.Servers)*gap), last, func(i int) time.Duration { return time.Duration(i) * gap })
	}
}

// isolate cuts one server off from all.
func isolate(g *generator) {
	f := Fault{Kind: Cut, On: g.server(), For: g.lasting(500*ms, 10*sec)}
	f.At = g.at(f.For)
	g.add(f)
}

// split cuts the servers into two groups, which agents and clients reach both.
func split(g *generator) {
	last := g.lasting(500*ms, 10*sec)
	at, alone := g.at(last), 1+g.rng.IntN(g.h.Servers)
	var all []Fault
	for i := 1; i <= g.h.Servers; i++ {
		if i != alone {
			all = append(all, Fault{Kind: Cut, On: "s" + strconv.Itoa(alone), To: "s" + strconv.Itoa(i), At: at, For: last})
		}
	}
	g.add(all...)
}

// away takes an agent away for long; meanwhile the log's floor may pass the place where it was.
func away(kind Kind) scene {
	return func(g *generator) {
		f := Fault{Kind: kind, On: g.agent(), For: g.lasting(g.h.Duration/6, g.h.Duration/3)}
		f.At = g.at(f.For)
		if g.add(f) && g.chance(75) {
			g.add(Fault{Kind: Retain, At: f.At + f.For/2, N: g.scaled(5, 50)})
		}
	}
}

// broken lets an agent begin with an empty or an old cache over a network that loses much, and
// breaks its connections while it is sent what it lacks.
func broken(g *generator) {
	kind := Lose
	if g.chance(50) {
		kind = Old
	}
	on, last := g.agent(), g.lasting(100*ms, 2*sec)
	at := g.at(last + 8*sec)
	all := []Fault{{Kind: kind, On: on, At: at, For: last}, {Kind: Lossy, On: on, At: at + ms, For: last + 6*sec, N: 30 + g.rng.Int64N(50)}}
	for range 3 {
		all = append(all, Fault{Kind: Reset, On: on, At: at + last + g.lasting(1*ms, 5*sec)})
	}
	g.add(all...)
}

// returns lets agents begin anew, again and again, while what one server says comes late to the
// others, or not at all: who leads knows only the sessions of before.
func returns(g *generator) {
	x, last := g.rng.IntN(g.h.Servers), g.lasting(10*sec, 16*sec)
	late, at := "s"+strconv.Itoa(x+1), g.at(last+3*sec)
	kind, n := Slow, 400+g.rng.Int64N(500)
	if g.chance(30) {
		kind, n = Cut, 0
	}
	all := []Fault{{Kind: Transfer, On: "s" + strconv.Itoa(1+(x+1)%g.h.Servers), At: at - 500*ms}}
	if kind == Cut { // it led, and its clients do not know that another does
		all[0].On = late
	}
	for i := range g.h.Servers {
		if i != x {
			all = append(all, Fault{Kind: kind, On: late, To: "s" + strconv.Itoa(i+1), At: at, For: last, N: n})
		}
	}
	for i := x; i < min(g.h.Agents, x+2*g.h.Servers); i += g.h.Servers { // those that ask this server first
		on := "cn" + strconv.Itoa(i+1)
		for again := at + 500*ms + g.lasting(100*ms, 1*sec); again < at+last-sec; again += 2200*ms + g.lasting(10*ms, 300*ms) {
			all = append(all, Fault{Kind: Kill, On: on, At: again, For: g.lasting(20*ms, 200*ms)})
		}
		if kind == Cut {
			all = append(all, Fault{Kind: Cut, On: on, To: late, At: at + sec, For: last - sec})
		}
	}
	g.add(all...)
}

// spoiled damages the folder of certificates of a machine, whose program ends after that.
func spoiled(on where) scene {
	return func(g *generator) {
		f := Fault{Kind: Spoil, For: g.lasting(2*sec, 15*sec), N: g.number(Spoil)}
		f.On, _ = on(g)
		f.At = g.at(f.For)
		g.add(f, Fault{Kind: Kill, On: f.On, At: f.At + g.lasting(0, f.For/2), For: g.lasting(100*ms, f.For/2)})
	}
}

// restore takes a backup, and restores the cluster from it some time later, at most once.
func restore(g *generator) {
	for _, f := range g.h.Faults {
		if f.Kind == Restore {
			return
		}
	}
	between := g.lasting(1*sec, 12*sec)
	at := g.at(between + RestoreTakes)
	g.add(Fault{Kind: Snapshot, On: g.server(), At: at}, Fault{Kind: Restore, On: g.server(), At: at + between})
}
