package history

import (
	"slices"
	"strconv"
	"time"
)

// This file has the scenes that aim: each leads to one state in which bugs were planted that
// histories of single faults do not find.

// aimed are the scenes of the aimed themes.
var aimed = map[Theme][]scene{
	Acknowledged: {lonely, lonely, leaderPower, leaderPower, dividedWriters, slowBlackout},
	Images:       {behind(Cut), slowBehind, imagePower, imagePower, imagePower, imageUnderWay, imageUnderWay, imageUnderWay, imageAfterRetain},
	Floors:       {floors, floors, away(Cut), away(Stop), behind(Stop), one(Power, servers, 200*ms, 4*sec), one(Transfer, servers, 0, 0)},
	Timelines:    {restore, restoreAway, restorePower, one(Retain, nobody, 0, 0), one(Kill, servers, 100*ms, 4*sec), away(Stop), isolate},
	Windows:      {one(Kill, servers, 100*ms, 5*sec), one(Power, servers, 200*ms, 5*sec), isolate, one(Transfer, servers, 0, 0), one(Reset, servers, 0, 0), one(Skew, servers, 1*sec, 10*sec), one(Lose, servers, 500*ms, 3*sec)},
	Elections:    {ended(Kill), ended(Kill), ended(Power), ended(Stop), handOvers, brokenLeader, brokenLeader},
	Stalls:       {leaderDisk(Hang), leaderDisk(Hang), leaderDisk(SlowSync), leaderDisk(Full), everywhere(Full), everywhere(SlowSync), one(Hang, servers, 2*sec, 12*sec)},
	Stale:        {staleLeader(Pause), staleLeader(Pause), staleLeader(Cut), slowFollower, slowFollower, handOvers},
	Scopes:       {broken, cutScope, flapping, flapping, flapping, one(Lose, agents, 100*ms, 3*sec), one(Old, agents, 100*ms, 3*sec), away(Cut), one(Transfer, servers, 0, 0), one(Kill, servers, 100*ms, 3*sec)},
	Sessions:     {sessions, sessions, sessions, sessions, one(Transfer, servers, 0, 0), one(Reset, agents, 0, 0)},
	Lies:         {one(Lie, agents, 0, 0), one(Lie, agents, 0, 0), one(Lie, agents, 0, 0), one(Transfer, servers, 0, 0)},
}

// shapes say how the whole history of a theme differs from others.
var shapes = map[Theme]func(g *generator){
	Acknowledged: busy, Images: busy, Floors: busy, Elections: busy, Stale: busy,
	Windows: func(g *generator) {
		g.h.Busy, g.h.Window = true, 100_000
		if g.chance(50) {
			g.h.Window = 20 + int(g.scaled(1, 100))
		}
	},
	Sessions: func(g *generator) { g.h.Clients = 1 }, // a barrier is done only when few write
	Scopes:   func(g *generator) { g.h.VMs = 20 + int(g.scaled(1, 60)) },
}

func busy(g *generator) { g.h.Busy = true }

// calm is how long nothing else happens before a scene that aims and after it.
const calm = sec

// alone places the faults of a scene if no other fault is under way in its time: another scene would
// take away what it aims at.
func (g *generator) alone(faults ...Fault) bool {
	from, until := lasts(faults)
	for _, f := range g.h.Faults {
		if first, last := lasts([]Fault{f}); first < until+calm && from < last+calm {
			return false
		}
	}
	return g.add(faults...)
}

// lasts is from when until when faults are under way.
func lasts(faults []Fault) (from, until time.Duration) {
	from = faults[0].At
	for _, f := range faults {
		end := f.At + f.For
		if f.Kind == Restore {
			end = f.At + RestoreTakes
		}
		from, until = min(from, f.At), max(until, end)
	}
	return from, until
}

// led makes a server the leader a second before a time, and returns it with two others.
func (g *generator) led(at time.Duration) (first Fault, leader string, others []string) {
	order := g.rng.Perm(g.h.Servers)
	for _, i := range order[1:] {
		others = append(others, "s"+strconv.Itoa(i+1))
	}
	leader = "s" + strconv.Itoa(order[0]+1)
	return Fault{Kind: Transfer, On: leader, At: at - sec}, leader, others
}

// lonely lets a leader and one follower take writes while the leader's disk is slow and the others
// are cut off. Then the leader loses its power and the follower ends: only what the leader had on
// its own disk may have been acknowledged, because the others elect it and have nothing of it.
func lonely(g *generator) {
	at := g.at(14*sec) + sec
	first, leader, others := g.led(at)
	slow := 100 + g.scaled(1, 600)
	lasts := time.Duration(1+g.rng.Int64N(3)) * sec
	all := []Fault{first, {Kind: SlowSync, On: leader, At: at + 500*ms, For: lasts + 2*sec, N: slow}}
	for _, name := range others[1:] {
		all = append(all, Fault{Kind: Cut, On: name, To: leader, At: at, For: lasts + sec}, Fault{Kind: Cut, On: name, To: others[0], At: at, For: lasts + sec})
	}
	g.alone(append(all, Fault{Kind: Kill, On: others[0], At: at + lasts, For: 7 * sec}, Fault{Kind: Power, On: leader, At: at + lasts - 100*ms, For: 300 * ms, N: 1 + g.rng.Int64N(3)})...)
}

// leaderPower lets a leader with a slow disk lose its power in the middle of writes, while one
// follower is away.
func leaderPower(g *generator) {
	at := g.at(12*sec) + sec
	first, leader, others := g.led(at)
	last := g.lasting(300*ms, 4*sec)
	g.alone(first, Fault{Kind: SlowSync, On: leader, At: at, For: 3 * sec, N: 10 + g.scaled(1, 400)},
		Fault{Kind: Stop, On: others[0], At: at + 200*ms, For: 2 * sec},
		Fault{Kind: Power, On: leader, At: at + sec + time.Duration(g.rng.IntN(2000))*ms, For: last, N: g.scaled(1, 40)})
}

// dividedWriters cuts the leader off with its writers, and lets it come back: what it took alone is
// replaced by what the others took, at a follower whose disk is slow or full too.
func dividedWriters(g *generator) {
	at := g.at(12*sec) + sec
	first, leader, others := g.led(at)
	last := g.lasting(sec, 5*sec)
	all := []Fault{first}
	for _, name := range others {
		all = append(all, Fault{Kind: Cut, On: leader, To: name, At: at, For: last})
	}
	trouble := Fault{Kind: SlowSync, On: leader, At: at + last - 200*ms, For: 3 * sec, N: 20 + g.scaled(1, 300)}
	if g.chance(50) {
		trouble.Kind, trouble.N = Full, g.scaled(0, 1<<16)
	}
	g.alone(append(all, trouble)...)
}

// behind takes a server away for as long as others need to trim their logs, so that it gets an
// image while writes go on.
func behind(kind Kind) scene {
	return func(g *generator) {
		f := Fault{Kind: kind, On: g.server(), For: g.lasting(5*sec, 9*sec)}
		f.At = g.at(f.For + 2*sec)
		g.alone(f)
	}
}

// slowBehind is behind for a server with a slow disk, whose markers and sweeps are under way when
// the image comes.
func slowBehind(g *generator) {
	last := g.lasting(5*sec, 8*sec)
	at, on := g.at(last+7*sec), g.server()
	g.alone(Fault{Kind: Cut, On: on, At: at, For: last},
		Fault{Kind: SlowSync, On: on, At: at - 100*ms, For: last + 6*sec, N: 50 + g.scaled(1, 900)},
		Fault{Kind: Kill, On: on, At: at + last + sec + time.Duration(g.rng.IntN(4000))*ms, For: 300 * ms})
}

// imagePower lets the power fail at a server that has just got an image, while its disk is slow:
// what the image replaced and what it allowed to delete is then not all on disk.
func imagePower(g *generator) {
	last := 4*sec + time.Duration(g.rng.IntN(2000))*ms
	at, on := g.at(last+4*sec), g.server()
	g.alone(Fault{Kind: Cut, On: on, At: at, For: last},
		Fault{Kind: SlowSync, On: on, At: at + last, For: 4 * sec, N: 50 + g.rng.Int64N(400)},
		Fault{Kind: Power, On: on, At: at + last + 800*ms + time.Duration(g.rng.IntN(1500))*ms, For: 500 * ms, N: 1 + g.rng.Int64N(4)})
}

// imageUnderWay takes a server away for so short a time that it is about to write a marker when
// an image comes, which a network that loses much makes last; then it ends.
func imageUnderWay(g *generator) {
	last := 1500*ms + time.Duration(g.rng.IntN(1200))*ms
	at, on := g.at(last+8*sec), g.server()
	g.alone(Fault{Kind: Cut, On: on, At: at, For: last},
		Fault{Kind: Lossy, On: on, At: at + last, For: 4 * sec, N: 10 + g.rng.Int64N(30)},
		Fault{Kind: Kill, On: on, At: at + last + 2500*ms + time.Duration(g.rng.IntN(4500))*ms, For: 300 * ms})
}

// imageAfterRetain is behind with a floor that rises meanwhile.
func imageAfterRetain(g *generator) {
	last := g.lasting(4*sec, 8*sec)
	at, on := g.at(last+2*sec), g.server()
	g.alone(Fault{Kind: Stop, On: on, At: at, For: last}, Fault{Kind: Retain, At: at + last/2, N: g.scaled(5, 40)})
}

// floors lets the log keep little, then much, then little.
func floors(g *generator) {
	at := g.at(8 * sec)
	var all []Fault
	for i := range 3 {
		all = append(all, Fault{Kind: Retain, At: at + time.Duration(i)*3*sec, N: g.scaled(5, 200)})
	}
	g.alone(all...)
}

// restored adds a backup and a restore, with more faults that are placed by the time of the
// restore. A history has one restore at most.
func (g *generator) restored(before, after time.Duration, more func(at time.Duration) []Fault) {
	if slices.ContainsFunc(g.h.Faults, func(f Fault) bool { return f.Kind == Restore }) {
		return
	}
	between := g.lasting(sec, 6*sec) + before
	at := g.at(between+RestoreTakes+after) + between
	g.alone(append([]Fault{{Kind: Snapshot, On: g.server(), At: at - between}, {Kind: Restore, On: g.server(), At: at}}, more(at)...)...)
}

// restoreAway restores the cluster while agents are away, which then come with places of the log
// that was.
func restoreAway(g *generator) {
	g.restored(2*sec, 0, func(at time.Duration) (all []Fault) {
		for i := range min(2, g.h.Agents) {
			all = append(all, Fault{Kind: []Kind{Stop, Cut}[g.rng.IntN(2)], On: "cn" + strconv.Itoa(i+1), At: at - sec, For: 3*sec + g.lasting(sec, 8*sec)})
		}
		return all
	})
}

// restorePower lets the power of a server fail after a restore.
func restorePower(g *generator) {
	g.restored(0, 3*sec, func(at time.Duration) []Fault {
		return []Fault{{Kind: Power, On: g.server(), At: at + RestoreTakes + time.Duration(g.rng.IntN(1000))*ms, For: 500 * ms, N: g.scaled(1, 60)}}
	})
}

// ended ends a leader in the middle of writes, and nothing else happens for a while.
func ended(kind Kind) scene {
	return func(g *generator) {
		at := g.at(7*sec) + sec
		first, leader, _ := g.led(at)
		f := Fault{Kind: kind, On: leader, At: at + g.lasting(0, sec), For: g.lasting(2*sec, 4*sec)}
		if kind == Power {
			f.N = 1
		}
		g.alone(first, f)
	}
}

// handOvers gives the leadership from server to server.
func handOvers(g *generator) {
	at := g.at(6 * sec)
	var all []Fault
	for i := range 4 {
		all = append(all, Fault{Kind: Transfer, On: g.server(), At: at + time.Duration(i)*g.lasting(200*ms, 1500*ms)})
	}
	g.alone(all...)
}

// brokenLeader breaks all connections of a leader that lives, and of one that ends then.
func brokenLeader(g *generator) {
	at := g.at(8*sec) + sec
	first, leader, others := g.led(at)
	all := []Fault{first, {Kind: []Kind{Reset, HalfOpen}[g.rng.IntN(2)], On: others[0], To: others[1], At: at}, {Kind: Reset, On: leader, At: at + 100*ms}}
	if g.chance(60) {
		all = append(all, Fault{Kind: Kill, On: leader, At: at + 200*ms + g.lasting(ms, 2*sec), For: 3 * sec})
	}
	g.alone(all...)
}

// leaderDisk is trouble with the disk of a leader.
func leaderDisk(kind Kind) scene {
	return func(g *generator) {
		last := g.lasting(4*sec, 12*sec)
		at := g.at(last+sec) + sec
		first, leader, _ := g.led(at)
		g.alone(first, Fault{Kind: kind, On: leader, At: at, For: last, N: g.number(kind)})
	}
}

// staleLeader lets a leader do or hear nothing for a time in which another is elected and takes
// writes. Clients reach it all the time if it is cut off from the servers only.
func staleLeader(kind Kind) scene {
	return func(g *generator) {
		last := g.lasting(400*ms, 5*sec)
		at := g.at(last+2*sec) + sec
		first, leader, others := g.led(at)
		all := []Fault{first}
		if kind == Pause {
			all = append(all, Fault{Kind: Pause, On: leader, At: at, For: last})
		} else {
			for _, name := range others {
				all = append(all, Fault{Kind: kind, On: leader, To: name, At: at, For: last})
			}
		}
		g.alone(all...)
	}
}

// slowFollower lets a follower get entries late, while it is read.
func slowFollower(g *generator) {
	last := g.lasting(2*sec, 8*sec)
	at := g.at(last+sec) + sec
	first, leader, others := g.led(at)
	g.alone(first, Fault{Kind: Slow, On: leader, To: others[0], At: at, For: last, N: 50 + g.scaled(1, 500)})
}

// sessions lets a node lose its power, or an agent begin with an old cache, for so short a time that
// the server that fed it has not noticed it when the next session begins.
func sessions(g *generator) {
	f := Fault{Kind: Old, On: g.agent(), For: g.lasting(20*ms, 400*ms)}
	if g.chance(70) {
		f.Kind, f.N = Power, 1
	}
	f.At = g.at(f.For+4*sec) + 100*ms
	g.alone(f, Fault{Kind: Cut, On: f.On, At: f.At - 50*ms, For: 50*ms + f.For + g.lasting(50*ms, 1500*ms)})
}

// flapping breaks the connections of some nodes again and again over a network that loses much:
// within scopes that a node began to want, and may want no more when it is back.
func flapping(g *generator) {
	at := g.at(12 * sec)
	var all []Fault
	for i := range min(3, g.h.Agents-1) {
		on := "cn" + strconv.Itoa(2+i)
		all = append(all, Fault{Kind: Lossy, On: on, At: at, For: 11 * sec, N: 20 + g.rng.Int64N(40)}, Fault{Kind: Slow, On: on, At: at, For: 11 * sec, N: 5 + g.scaled(1, 100)})
		for from := at; from < at+9*sec; {
			from += 500*ms + time.Duration(g.rng.IntN(1500))*ms
			away := 200*ms + g.lasting(100*ms, 2*sec)
			all = append(all, Fault{Kind: Reset, On: on, At: from}, Fault{Kind: Cut, On: on, At: from, For: away})
			from += away
		}
	}
	g.alone(all...)
}

// cutScope lets an agent begin without a cache over a network that is slow, and breaks its
// connections while scopes come; then it is away for a while, in which it may lose its interest.
func cutScope(g *generator) {
	on, last := g.agent(), g.lasting(100*ms, sec)
	at := g.at(last + 12*sec)
	all := []Fault{{Kind: Lose, On: on, At: at, For: last}, {Kind: Slow, On: on, At: at + ms, For: last + 11*sec, N: 5 + g.scaled(1, 150)}, {Kind: Lossy, On: on, At: at + 2*ms, For: last + 11*sec, N: 10 + g.rng.Int64N(50)}}
	for from := at + last; from < at+last+9*sec; {
		from += 300*ms + time.Duration(g.rng.IntN(1500))*ms
		away := g.lasting(sec, 4*sec)
		all = append(all, Fault{Kind: Reset, On: on, At: from}, Fault{Kind: Cut, On: on, At: from, For: away})
		from += away
	}
	g.alone(all...)
}
