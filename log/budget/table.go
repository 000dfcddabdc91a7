package budget

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Name is the name of a budget in settings, metrics, refusals and docs/safety.md.
type Name string

// The budgets.
const (
	CNOperations      Name = "cn_operations"
	CNBytes           Name = "cn_bytes"
	ForeignOperations Name = "foreign_operations"
	ForeignBytes      Name = "foreign_bytes"
	OperatorEntries   Name = "operator_entries"
	ReaderEntries     Name = "reader_entries"
	TenantEntries     Name = "tenant_entries"
	ReaderBytes       Name = "reader_bytes"
	TenantBytes       Name = "tenant_bytes"
	CNCertificates    Name = "cn_certificates"
	Tokens            Name = "tokens"
	Placements        Name = "placements"
)

// Budget is how much work one party may use. If PerSecond is 0, there is no bound.
type Budget struct {
	Name Name
	// Of says which party has an account, What says what is counted.
	Of, What string
	// PerSecond is the rate at which an account fills. AtOnce is what it holds at most,
	// and at its begin. If PerHour is not 0, it replaces PerSecond.
	PerSecond, PerHour, AtOnce int64
	Why                        string // the reason for the numbers
}

// table has every budget, in the order of docs/safety.md.
var table = []Budget{
	{
		Name: CNOperations, Of: "each compute node", What: "operations written, at the leader", PerSecond: 256, AtOnce: 4096,
		Why: "a node that starts tells its VMs and NICs at once, one with more than these within a minute; then it changes some of them a second",
	},
	{
		Name: CNBytes, Of: "each compute node", What: "bytes of changes written, at the leader", PerSecond: 256 << 10, AtOnce: 4 << 20,
		Why: "1 KiB for each of those operations",
	},
	{
		Name: ForeignOperations, Of: "each address without a certificate", What: "operations written, at the leader", PerSecond: 1000, AtOnce: 16_384,
		Why: "Triton's services, which provision some NICs a second, and import many",
	},
	{
		Name: ForeignBytes, Of: "each address without a certificate", What: "bytes of changes written, at the leader", PerSecond: 1 << 20, AtOnce: 16 << 20,
		Why: "1 KiB for each of those operations",
	},
	{
		Name: OperatorEntries, Of: "each operator", What: "entries looked at by filters, and of the past", PerSecond: 500_000, AtOnce: 2_000_000,
		Why: "a search through ten million entries goes on for 16 s, about as long as it takes",
	},
	{
		Name: ReaderEntries, Of: "each reader and compute node", What: "entries and objects looked at", PerSecond: 20_000, AtOnce: 100_000,
		Why: "a page that shows the past looks at some thousands; an object of the past that is made takes about 5 us",
	},
	{
		Name: TenantEntries, Of: "each reader of a tenant, and each tenant", What: "entries and objects looked at", PerSecond: 2000, AtOnce: 10_000,
		Why: "the index finds what is the tenant's, so nearly all that is looked at is shown, which takes about 50 us each: a tenth of a core",
	},
	{
		Name: ReaderBytes, Of: "each reader and compute node", What: "bytes of answers, the feed's left out", PerSecond: 2 << 20, AtOnce: 32 << 20,
		Why: "1 MiB of lines is about 100 ms of a core",
	},
	{
		Name: TenantBytes, Of: "each reader of a tenant, and each tenant", What: "bytes of answers", PerSecond: 1 << 20, AtOnce: 8 << 20,
		Why: "as above, half: tenants are many, and strangers",
	},
	{
		Name: CNCertificates, Of: "each compute node", What: "certificates issued", PerHour: 60, AtOnce: 60,
		Why: "a node renews once in weeks, and each certificate is an entry of the log; where certificates are good for minutes, it is enough too",
	},
	{
		Name: Tokens, Of: "each operator", What: "tokens issued", PerSecond: 20, AtOnce: 20_000,
		Why: "a token for each node of two clusters at once",
	},
	{
		Name: Placements, Of: "each client of CNAPI", What: "servers looked at for POST /allocate and /capacity, and a sixteenth of the VMs", PerSecond: 100_000, AtOnce: 1_000_000,
		Why: "6 placements a second among 10,000 servers with 100,000 VMs, 60 at once, which take about 30 ms of a core each",
	},
}

// Table returns every budget with its defaults.
func Table() []Budget { return slices.Clone(table) }

// Set has the budgets of a server. nil has the defaults.
type Set map[Name]Budget

// Get returns a budget.
func (s Set) Get(name Name) Budget {
	if b, ok := s[name]; ok {
		return b
	}
	for _, b := range table {
		if b.Name == name {
			return b
		}
	}
	return Budget{Name: name}
}

// Parse reads settings: NAME=PER_SECOND, NAME=PER_SECOND:AT_ONCE, or NAME=off for no
// bound. For a budget with PerHour the number is per hour.
func Parse(settings []string) (Set, error) {
	set := make(Set)
	for _, text := range settings {
		name, value, ok := strings.Cut(text, "=")
		at := slices.IndexFunc(table, func(b Budget) bool { return string(b.Name) == name })
		if !ok || at < 0 {
			names := make([]string, len(table))
			for i, b := range table {
				names[i] = string(b.Name)
			}
			return nil, fmt.Errorf("budget %q: want NAME=PER_SECOND or NAME=PER_SECOND:AT_ONCE, where NAME is one of %s", text, strings.Join(names, ", "))
		}
		b := table[at]
		if err := b.set(value); err != nil {
			return nil, fmt.Errorf("budget %q: %w", text, err)
		}
		set[b.Name] = b
	}
	return set, nil
}

func (b *Budget) set(value string) error {
	if value == "off" {
		b.PerSecond, b.PerHour = 0, 0
		return nil
	}
	rate, atOnce, both := strings.Cut(value, ":")
	n, err := strconv.ParseInt(rate, 10, 48)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is no number from 1 on, nor off", rate)
	}
	// AtOnce scales with the rate, unless it is set too.
	if b.PerHour > 0 {
		b.AtOnce, b.PerHour = max(1, scale(b.AtOnce, n, b.PerHour)), n
	} else {
		b.AtOnce, b.PerSecond = max(1, scale(b.AtOnce, n, b.PerSecond)), n
	}
	if !both {
		return nil
	}
	if b.AtOnce, err = strconv.ParseInt(atOnce, 10, 48); err != nil || b.AtOnce < 1 {
		return fmt.Errorf("%q is no number from 1 on", atOnce)
	}
	return nil
}

func scale(n, by, of int64) int64 { return int64(float64(n) * float64(by) / float64(of)) }

// rate is the rate per second at which an account fills. 0: no bound.
func (b Budget) rate() float64 {
	if b.PerHour > 0 {
		return float64(b.PerHour) / 3600
	}
	return float64(b.PerSecond)
}

// String describes the budget, as in "256 a second, 16384 at once".
func (b Budget) String() string {
	switch {
	case b.PerHour > 0:
		return fmt.Sprintf("%d an hour, %d at once", b.PerHour, b.AtOnce)
	case b.PerSecond > 0:
		return fmt.Sprintf("%d a second, %d at once", b.PerSecond, b.AtOnce)
	}
	return "no bound"
}

// Limits returns what an account gains in a second, and the most that it holds; 0 and 0 if
// the budget has no bound.
func (b Budget) Limits() (perSecond, atOnce float64) {
	if perSecond = b.rate(); perSecond == 0 {
		return 0, 0
	}
	return perSecond, float64(b.AtOnce)
}
