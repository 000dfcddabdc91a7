package history

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// Span is a least and a most, both ends included.
type Span struct{ Least, Most int }

// Profile says what histories are made: how large, how long, and of which mixtures.
type Profile struct {
	Servers, Agents, Clients Span
	Duration                 time.Duration
	Faults                   Span    // how often something happens; a scene may be several faults
	Themes                   []Theme // those that a history draws from; nil: all
	TLS, WAL, Replicas       int     // percent of the histories
}

// Usual is what most histories are: three servers, five agents, a minute.
func Usual() Profile {
	return Profile{
		Servers: Span{3, 3}, Agents: Span{5, 5}, Clients: Span{3, 6},
		Duration: time.Minute, Faults: Span{3, 20}, TLS: 20, WAL: 33, Replicas: 12,
	}
}

// Wide is a history now and then: up to five servers and 50 agents.
func Wide() Profile {
	p := Usual()
	p.Servers, p.Agents, p.Clients = Span{3, 5}, Span{5, 50}, Span{3, 8}
	return p
}

// Lasting is the same profile for histories of another length, with as many faults a minute.
func (p Profile) Lasting(d time.Duration) Profile {
	scale := func(n int) int { return max(1, int(int64(n)*int64(d)/int64(p.Duration))) }
	p.Faults = Span{scale(p.Faults.Least), scale(p.Faults.Most)}
	p.Duration = d
	return p
}

// Of is the same profile for histories of some themes; none: of all. Themes of certificates need
// them.
func (p Profile) Of(list []Theme) Profile {
	if len(list) > 0 {
		p.Themes = list
	}
	if slices.Contains(list, Trust) || slices.Contains(list, Lies) {
		p.TLS = 100
	}
	return p
}

// Theme is a group of faults that belong together. A history has two to four of them, so that
// some histories have much of one kind of trouble and none of another: with everything at once,
// one kind hides what another would show (Groce and others, Swarm Testing, ISSTA 2012).
type Theme string

// The themes.
const (
	Crashes    Theme = "crashes"    // processes end, pause and lose power
	Blackouts  Theme = "blackouts"  // all servers lose power at once
	Partitions Theme = "partitions" // what cannot reach what
	WeakNet    Theme = "weaknet"    // a network that is slow and loses segments
	Disks      Theme = "disks"      // disks that hang, are slow, are full
	Damage     Theme = "damage"     // copies are lost or rotten
	Clocks     Theme = "clocks"     // wall clocks are wrong
	Members    Theme = "members"    // servers come, go and hand over
	Backups    Theme = "backups"    // backups, restores and retention
	Trust      Theme = "trust"      // certificates are revoked and rotated
	Upgrades   Theme = "upgrades"   // older programs
	Nodes      Theme = "nodes"      // compute nodes and their kernels
	Away       Theme = "away"       // agents that are away for long while the log goes on
	Replicas   Theme = "replicas"   // servers without a vote; each history that has some has this theme
)

// Aimed themes: each leads to what few histories of the others come to.
const (
	Acknowledged Theme = "acknowledged" // a leader ends while it acknowledges writes that few disks have
	Images       Theme = "images"       // images are sent to servers that are behind, and power fails then
	Floors       Theme = "floors"       // the log's floor rises again and again
	Timelines    Theme = "timelines"    // the cluster is restored while readers and agents hold places of the old log
	Windows      Theme = "windows"      // few change ids are remembered, and old changes are sent again
	Elections    Theme = "elections"    // leaders end and hand over under writers
	Stalls       Theme = "stalls"       // the disk of a leader or of all hangs, is slow or full
	Stale        Theme = "stale"        // a leader is paused or cut off, and comes back
	Scopes       Theme = "scopes"       // long scopes, and connections that break within them
	Sessions     Theme = "sessions"     // agents begin again with what they were, at another server, while barriers wait
	Lies         Theme = "lies"         // compute nodes with certificates lie
)

// scene adds one thing that happens, which may be several faults.
type scene func(g *generator)

// themes are the scenes of each theme. A scene that stands twice is twice as frequent.
var themes = func() map[Theme][]scene {
	all := maps.Clone(broad)
	maps.Copy(all, aimed)
	return all
}()

// broad are the scenes of the themes that are kinds of trouble.
var broad = map[Theme][]scene{
	Crashes: {
		one(Kill, servers, 100*ms, 8*sec), one(Kill, servers, 100*ms, 8*sec), one(Kill, agents, 100*ms, 10*sec),
		one(Power, servers, 200*ms, 8*sec), one(Power, servers, 200*ms, 8*sec), one(Power, agents, 200*ms, 8*sec),
		one(Pause, servers, 300*ms, 6*sec), one(Pause, servers, 300*ms, 6*sec), one(Pause, agents, 300*ms, 15*sec),
		one(Stop, servers, 100*ms, 5*sec), one(Stop, agents, 100*ms, 5*sec),
	},
	Blackouts: {blackout(Power), blackout(Power), blackout(Kill), slowBlackout, one(Power, servers, 200*ms, 5*sec)},
	Partitions: {
		isolate, isolate, split, one(Cut, pairs, 500*ms, 12*sec), one(OneWay, pairs, 500*ms, 12*sec), one(OneWay, pairs, 500*ms, 12*sec),
		one(HalfOpen, pairs, 0, 0), one(Reset, pairs, 0, 0), one(Cut, agentToServer, 1*sec, 15*sec), one(OneWay, agentToServer, 1*sec, 15*sec),
		one(HalfOpen, agentToServer, 0, 0),
	},
	WeakNet: {
		one(Slow, servers, 1*sec, 15*sec), one(Slow, pairs, 1*sec, 15*sec), one(Lossy, servers, 1*sec, 15*sec), one(Lossy, pairs, 1*sec, 15*sec),
		one(Reset, servers, 0, 0), one(Reset, agents, 0, 0), one(Slow, agents, 1*sec, 15*sec), one(Lossy, agents, 1*sec, 15*sec),
	},
	Disks: {
		one(Hang, servers, 200*ms, 12*sec), one(Hang, servers, 200*ms, 12*sec), one(SlowSync, servers, 1*sec, 15*sec), one(Full, servers, 1*sec, 12*sec),
		one(Full, agents, 1*sec, 12*sec), one(Hang, agents, 200*ms, 8*sec), one(SlowSync, agents, 1*sec, 15*sec), everywhere(Full), everywhere(SlowSync),
	},
	Damage: {
		one(Rot, servers, 500*ms, 5*sec), one(Lose, servers, 500*ms, 5*sec), one(Rot, agents, 100*ms, 5*sec), one(Lose, agents, 100*ms, 5*sec),
		one(Old, agents, 100*ms, 5*sec), one(Kill, servers, 100*ms, 4*sec),
	},
	Clocks:  {one(Skew, servers, 1*sec, 20*sec), one(Skew, servers, 1*sec, 20*sec), one(Skew, agents, 1*sec, 20*sec), one(Drift, servers, 2*sec, 25*sec), one(Transfer, servers, 0, 0)},
	Members: {one(Transfer, servers, 0, 0), one(Transfer, servers, 0, 0), one(Remove, servers, 1*sec, 8*sec), one(Stop, servers, 200*ms, 5*sec), rolling(Stop)},
	Backups: {
		one(Snapshot, servers, 0, 0), one(Snapshot, servers, 0, 0), one(Retain, nobody, 0, 0), one(Retain, nobody, 0, 0), restore,
		one(Transfer, servers, 0, 0),
	},
	Trust:    {one(Rotate, nobody, 0, 0), one(Revoke, agents, 1*sec, 8*sec), one(Revoke, servers, 1*sec, 8*sec), one(Reset, servers, 0, 0), one(Spoil, agents, 1*sec, 20*sec), one(Spoil, agents, 1*sec, 20*sec), one(Spoil, servers, 1*sec, 20*sec), spoiled(agents), spoiled(servers)},
	Upgrades: {one(Older, servers, 1*sec, 8*sec), one(Older, agents, 1*sec, 15*sec), rolling(Older)},
	Nodes: {
		one(Meddle, agents, 0, 0), one(Refuse, agents, 1*sec, 10*sec), one(Lie, agents, 0, 0), one(Lie, agents, 0, 0), one(Power, agents, 200*ms, 8*sec), one(Kill, agents, 100*ms, 6*sec), one(Pause, agents, 500*ms, 10*sec),
		one(Lose, agents, 100*ms, 5*sec), one(Cut, agents, 500*ms, 10*sec), one(Reset, agents, 0, 0), broken, returns,
	},
	Replicas: replicaScenes,
	Away:     {away(Cut), away(Stop), away(Pause), away(Kill), one(Old, agents, 1*sec, 10*sec), broken, returns, returns},
}

// Themes returns every theme, sorted by name.
func Themes() []Theme {
	all := make([]Theme, 0, len(themes))
	for t := range themes {
		all = append(all, t)
	}
	slices.Sort(all)
	return all
}

const (
	ms  = time.Millisecond
	sec = time.Second
	// lead is how long the cluster is left alone at the beginning, and tail how long before
	// the end of the history all faults are over.
	lead = 500 * ms
	tail = 2 * sec
)

// generator is a history in the making.
type generator struct {
	h      History
	rng    *rand.Rand
	shapes []func(g *generator) // of the drawn themes
}

// Generate makes the history of a seed. The same seed and profile give the same history.
func Generate(seed uint64, p Profile) History {
	g := &generator{rng: newRand(seed)}
	g.h = History{
		Seed: seed, Servers: g.within(p.Servers), Agents: g.within(p.Agents), Clients: g.within(p.Clients),
		Duration: p.Duration, TLS: g.chance(p.TLS), WAL: g.chance(p.WAL),
	}
	own := newRandOf(seed, replicaDraws) // so that histories without replicas are those of before there were any
	if p.Themes == nil && own.IntN(100) < p.Replicas || slices.Contains(p.Themes, Replicas) {
		g.h.Replicas = 1 + own.IntN(mostReplicas)
	}
	scenes := g.mixture(p.Themes)
	for _, shape := range g.shapes {
		shape(g)
	}
	for range g.within(p.Faults) {
		scenes[g.rng.IntN(len(scenes))](g)
	}
	return g.h
}

// mixture draws which scenes this history has. Each scene of the drawn themes is itself left
// out in a third of the histories.
func (g *generator) mixture(from []Theme) []scene {
	if from == nil {
		from = slices.Sorted(maps.Keys(broad))
		if g.chance(25) { // aimed histories take several times the processor time of the others
			from = Themes()
		}
	}
	from = slices.DeleteFunc(slices.Clone(from), func(t Theme) bool { return (t == Trust || t == Lies) && !g.h.TLS || t == Replicas })
	g.rng.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
	from = from[:min(len(from), 2+g.rng.IntN(3))]
	if g.h.Replicas > 0 {
		from = append(from, Replicas)
	}
	var drawn []scene
	for _, t := range from {
		if shape := shapes[t]; shape != nil {
			g.shapes = append(g.shapes, shape)
		}
		first := len(drawn)
		for _, s := range themes[t] {
			if !g.chance(33) {
				drawn = append(drawn, s)
			}
		}
		if len(drawn) == first {
			drawn = append(drawn, themes[t][0])
		}
	}
	return drawn
}

// add places faults if all of them can be: together they leave a history that is valid.
func (g *generator) add(faults ...Fault) bool {
	next := g.h
	next.Faults = slices.Clone(g.h.Faults)
	for _, f := range faults {
		end := f.At + f.For
		if f.Kind == Restore {
			end = f.At + RestoreTakes
		}
		if end > g.h.Duration-tail {
			return false
		}
		f.Seed = g.rng.Uint64()
		next.Faults = append(next.Faults, f)
	}
	slices.SortStableFunc(next.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	if next.Validate() != nil {
		return false
	}
	g.h = next
	return true
}

func (g *generator) chance(percent int) bool { return g.rng.IntN(100) < percent }

func (g *generator) within(s Span) int { return s.Least + g.rng.IntN(s.Most-s.Least+1) }

// at draws when something happens that takes so long.
func (g *generator) at(takes time.Duration) time.Duration {
	room := g.h.Duration - lead - tail - takes
	if room <= 0 {
		return lead
	}
	return lead + time.Duration(g.rng.Int64N(int64(room))).Truncate(ms)
}

// lasting draws a duration; short ones are as frequent as long ones, on a logarithmic scale. It
// is at most a third of the history.
func (g *generator) lasting(least, most time.Duration) time.Duration {
	most = max(min(most, g.h.Duration/3), least)
	if most == 0 {
		return 0
	}
	return time.Duration(g.scaled(int64(least/ms), int64(most/ms))) * ms
}

// scaled draws a number of which each order of magnitude is as frequent as any other.
func (g *generator) scaled(least, most int64) int64 {
	if least >= most {
		return least
	}
	for top := most; ; top /= 2 {
		if top/2 <= least || g.rng.IntN(2) == 0 {
			return least + g.rng.Int64N(max(top-least, 1)+1)
		}
	}
}

// replicaDraws is the second seed of whether a history has replicas.
const replicaDraws = 0x5275747465720002

// newRand is the source of what a history draws.
func newRand(seed uint64) *rand.Rand { return newRandOf(seed, 0x5275747465720001) }

func newRandOf(seed, of uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, of)) }
