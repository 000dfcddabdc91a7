package vmsource

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// Source is where VMs come from.
type Source interface {
	// Name names the source, in statuses and among other sources.
	Name() string
	// Run keeps the sink in step with the source until ctx ends, and calls sink.Loaded
	// once: after the first complete load, or when there is nothing to load for now. After an
	// error, or an end of its own, it is run again after a pause that grows; its VMs stay
	// meanwhile, and the sink of the next run has them.
	Run(ctx context.Context, sink Sink) error
	// Scan asks for a full scan soon. It returns at once.
	Scan()
	// Status returns the source's status. It returns at once, from any goroutine.
	Status() Status
}

// ErrDuplicate: another source has a VM of that UUID. The VM stays the other's until that
// source lets it go.
var ErrDuplicate = errors.New("vminfo: another source has this VM")

// ErrZonename: another VM of the node has the zonename, which is the name of its network
// namespace. The second VM is put aside until the first lets it go.
var ErrZonename = errors.New("vminfo: another VM has this zonename")

// Sink receives what a source reports. It is called from the goroutine of the source's
// Run.
type Sink interface {
	// Put stores a VM; it returns what changed, and whether anything did.
	Put(vm vmdoc.VM) ([]vmdoc.Change, bool, error)
	// Delete removes a VM, and returns whether it was there.
	Delete(id log.UUID) bool
	// UUIDs are those of the source's VMs.
	UUIDs() []log.UUID
	// Loaded: see Source.
	Loaded()
}

// Status is a source's report about itself.
type Status struct {
	Name  string `json:"name"`
	State string `json:"state"` // what it does, or why it cannot
	// Complete: the source has seen all of its VMs, and sees them now. Otherwise a VM
	// that it does not report may still exist.
	Complete bool `json:"complete"`
	// Listed: a VM that is neither reported nor in Aside is not the source's, even while it
	// is not complete: it keeps the list of its VMs itself, and cannot see how they are.
	Listed   bool      `json:"listed,omitempty"`
	Skips    []string  `json:"skips,omitempty"`
	Aside    []Aside   `json:"aside"` // what it cannot use, by name
	Scans    int       `json:"scans"` // full scans
	Missed   int       `json:"missed"`
	LastScan time.Time `json:"lastScan,omitzero"`
	Log      []Refresh `json:"refreshLog"` // the last scans that found what events had missed
	Errors   []Failure `json:"refreshErrors"`
	Events   uint64    `json:"events"`    // received from the system
	Merged   uint64    `json:"coalesced"` // VMs that changed again before they were reported
	Waiting  int       `json:"waiting"`   // VMs with changes that were not reported yet
}

// Lists reports whether a VM that the source neither reports nor has aside is not its own.
func (s *Status) Lists() bool { return s.Complete || s.Listed }

// Has reports whether something aside is about a VM, or has its name.
func (s *Status) Has(vm log.UUID) bool {
	return slices.ContainsFunc(s.Aside, func(a Aside) bool {
		return a.UUID == vm || strings.TrimSuffix(a.Name, ".json") == vm.String()
	})
}

// Aside is something that a source found and does not use. Its VM, if any, stays as it
// was.
type Aside struct {
	Name   string    `json:"name"`
	UUID   log.UUID  `json:"uuid,omitzero"` // of the VM that it seems to be about, if known
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// Refresh is a full scan that found what events had missed.
type Refresh struct {
	Date      time.Time `json:"date"`
	Took      string    `json:"took"`
	VMChanges []Missed  `json:"vmChanges"`
}

// Missed is one difference that a full scan found.
type Missed struct {
	Zonename string         `json:"zonename"`
	Action   string         `json:"action"` // create, modify or delete
	Changes  []vmdoc.Change `json:"changes,omitempty"`
}

// Failure is trouble after which a source continued.
type Failure struct {
	Date time.Time `json:"date"`
	Err  string    `json:"err"`
}

// KeptRefreshes is how many scans and failures are remembered, as vminfod does.
const KeptRefreshes = 5

// KeepLast appends to a list of bounded length.
func KeepLast[T any](list []T, item T) []T {
	list = append(list, item)
	if len(list) > KeptRefreshes {
		list = append([]T(nil), list[len(list)-KeptRefreshes:]...)
	}
	return list
}

// PrettySeconds prints as vminfod does: 300.5s (5.01m).
func PrettySeconds(d time.Duration) string {
	seconds := math.Round(d.Seconds()*10) / 10
	text := strconv.FormatFloat(seconds, 'f', -1, 64) + "s"
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= unit.size {
			n := math.Round(d.Seconds()/unit.size.Seconds()*100) / 100
			return text + " (" + strconv.FormatFloat(n, 'f', -1, 64) + unit.name + ")"
		}
	}
	return text
}

// Bounds of a source's status, and its default scan interval.
const (
	// MaxAside bounds the list of what cannot be used.
	MaxAside = 1000
	// MaxMissed bounds what one scan lists; it counts them all.
	MaxMissed = 1000
	// DefaultScanEvery is the time between two full scans, as vminfod has it.
	DefaultScanEvery = 5 * time.Minute
)
