package history

import "slices"

// What a fault of a kind needs, for making faults and for checking files.

// place is a set of the things that a fault can be on.
type place uint8

const (
	onServer place = 1 << iota
	onAgent
	onClient
	onReplica // a server without a vote
	onNobody  // the fault is the whole cluster's, and On is empty
	anywhere  = onServer | onAgent | onClient | onReplica
	// onProgram are those that run a program of Rutter with a disk.
	onProgram = onServer | onAgent | onReplica
)

// Spoils is how many ways there are to damage a folder of certificates.
const Spoils = 12

// bounds are the values that N may have, both ends included.
type bounds struct{ least, most int64 }

// form is what a fault of a kind looks like.
type form struct {
	on     place
	to     bool   // To may be set
	needTo bool   // To must be set
	lasts  bool   // For must be set; without it, For must be 0
	n      bounds // of N; both 0: N must be 0
	what   string // N's meaning, for people
	ends   bool   // the process is not there, or does nothing, from At until the end of For
}

// KillSlack is how long after At a process may still run that a fault ends: Power waits for an
// operation on the disk. Faults of one process are at least so far apart.
const KillSlack = 2e9

const (
	second = int64(1000) // in milliseconds
	hour   = 3600 * second
)

var forms = map[Kind]form{
	Kill:  {on: onProgram, lasts: true, ends: true},
	Power: {on: onProgram, lasts: true, ends: true, n: bounds{1, 10_000}, what: "number of the operation"},
	Pause: {on: onProgram, lasts: true, ends: true},
	Stop:  {on: onProgram, lasts: true, ends: true},
	Older: {on: onProgram, lasts: true, ends: true, n: bounds{1, 7}, what: "feature version"},

	Cut:      {on: anywhere, to: true, lasts: true},
	OneWay:   {on: anywhere, to: true, needTo: true, lasts: true},
	Slow:     {on: anywhere, to: true, lasts: true, n: bounds{1, 60 * second}, what: "milliseconds"},
	Lossy:    {on: anywhere, to: true, lasts: true, n: bounds{1, 90}, what: "percent"},
	Reset:    {on: anywhere, to: true},
	HalfOpen: {on: anywhere, to: true},

	Hang:     {on: onProgram, lasts: true},
	SlowSync: {on: onProgram, lasts: true, n: bounds{1, 60 * second}, what: "milliseconds"},
	Full:     {on: onProgram, lasts: true, n: bounds{0, 1 << 30}, what: "bytes"},
	Rot:      {on: onProgram, lasts: true, ends: true, n: bounds{1, 10_000}, what: "bits"},
	Lose:     {on: onProgram, lasts: true, ends: true},
	Old:      {on: onAgent, lasts: true, ends: true},

	Skew:  {on: onProgram, lasts: true, n: bounds{-48 * hour, 48 * hour}, what: "milliseconds"},
	Drift: {on: onServer | onReplica, lasts: true, n: bounds{-500_000, 500_000}, what: "parts per million"},

	Transfer: {on: onServer},
	Remove:   {on: onServer | onReplica, lasts: true, ends: true},
	Promote:  {on: onReplica, lasts: true},
	Snapshot: {on: onServer | onReplica},
	Restore:  {on: onServer | onNobody},
	Retain:   {on: onNobody, n: bounds{1, 1_000_000}, what: "entries"},
	Rotate:   {on: onNobody},
	Spoil:    {on: onProgram, lasts: true, n: bounds{1, Spoils}, what: "damage"},
	Revoke:   {on: onProgram, lasts: true},

	Meddle: {on: onAgent, n: bounds{1, 1_000}, what: "objects"},
	Refuse: {on: onAgent, lasts: true, n: bounds{1, 100}, what: "percent"},
	Lie:    {on: onAgent},
}

// Kinds returns every kind of fault, sorted by name.
func Kinds() []Kind {
	var all []Kind
	for k := range forms {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// loses reports whether a fault of this kind takes a server's copy of the log away for good.
func (k Kind) loses() bool { return k == Rot || k == Lose || k == Remove }
