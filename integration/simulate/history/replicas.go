package history

import "strconv"

// This file has the scenes of servers without a vote.

// replicaScenes are those of the theme Replicas.
var replicaScenes = []scene{
	one(Kill, replicas, 100*ms, 15*sec), one(Power, replicas, 200*ms, 8*sec), one(Pause, replicas, 300*ms, 5*sec), one(Stop, replicas, 100*ms, 5*sec),
	one(Lose, replicas, 500*ms, 5*sec), one(Rot, replicas, 500*ms, 5*sec), one(Remove, replicas, 1*sec, 8*sec), one(Revoke, replicas, 500*ms, 5*sec), one(Spoil, replicas, 1*sec, 15*sec),
	one(Hang, replicas, 200*ms, 12*sec), one(SlowSync, replicas, 1*sec, 15*sec), one(Full, replicas, 1*sec, 12*sec), one(Skew, replicas, 1*sec, 20*sec),
	one(Cut, replicas, 500*ms, 10*sec), one(Slow, replicas, 1*sec, 15*sec), one(Lossy, replicas, 1*sec, 15*sec), one(Reset, replicas, 0, 0),
	lagging, lagging, lagging, withoutReplicas, withoutReplicas, one(Promote, replicas, 2*sec, 15*sec), one(Promote, replicas, 2*sec, 15*sec), promoted,
}

func replicas(g *generator) (on, to string) { return g.replica(), "" }

func (g *generator) replica() string { return "n" + strconv.Itoa(1+g.rng.IntN(g.h.Replicas)) }

// lagging lets what the servers with a vote send a replica come late, or not at all, while compute
// nodes and clients reach it as before.
func lagging(g *generator) {
	on, last := g.replica(), g.lasting(4*sec, 15*sec)
	at := g.at(last)
	kind, n := Cut, int64(0)
	switch g.rng.IntN(4) {
	case 0:
		kind, n = Slow, 1000+g.rng.Int64N(5000)
	case 1:
		kind, n = Lossy, 60+g.rng.Int64N(31)
	case 2:
		kind = OneWay
	}
	var all []Fault
	for i := range g.h.Servers {
		f := Fault{Kind: kind, On: "s" + strconv.Itoa(i+1), To: on, At: at, For: last, N: n}
		all = append(all, f)
	}
	g.add(all...)
}

// withoutReplicas ends all replicas at the same time.
func withoutReplicas(g *generator) {
	last := g.lasting(1*sec, 16*sec)
	at, kind := g.at(last), []Kind{Kill, Cut}[g.rng.IntN(2)]
	var all []Fault
	for i := range g.h.Replicas {
		all = append(all, Fault{Kind: kind, On: "n" + strconv.Itoa(i+1), At: at, For: last})
	}
	g.add(all...)
}

// promoted gives a replica a vote, and ends it, or a server with a vote, meanwhile.
func promoted(g *generator) {
	on, last := g.replica(), g.lasting(6*sec, 15*sec)
	at := g.at(last)
	ends := Fault{Kind: Kill, On: on, At: at + 2*sec + g.lasting(0, last-4*sec), For: g.lasting(200*ms, sec)}
	if g.chance(50) {
		ends.On = g.server()
	}
	g.add(Fault{Kind: Promote, On: on, At: at, For: last}, ends)
}
