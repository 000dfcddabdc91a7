package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"rutter/agent/filter"
	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/agent/ports"
	"rutter/projections/desired"
)

// Security says whether a node attaches its VMs with port security.
type Security struct {
	plan.Secure
	// Since is why port security is off although nothing asked for that; "" else.
	Since string
	// Rules: the kernel has, or may have, rules.
	Rules bool
}

// The files in the data folder about port security. The first has what the folder was made
// with. The second is there if the kernel may have rules.
const (
	securityFile = "port-security"
	rulesFile    = "port-security-rules"
)

// SecurityOf returns whether links are attached with port security. asked is "on", "off",
// or "": then it is what the data folder was made with. A folder that is made now is made
// with it, unless the node has a cache or links of a version that had none.
// look reads the links of the node. required is nil for the default: rules are required where the folder was made with them.
func SecurityOf(ctx context.Context, folder, asked string, required *bool, look func(context.Context) (plan.Snapshot, error), logger *slog.Logger) (Security, error) {
	made, since, err := madeWith(ctx, folder, look)
	if err != nil {
		return Security{}, err
	}
	s := Security{Secure: plan.Secure{On: made, Required: made}}
	switch asked {
	case "on", "off":
		s.On = asked == "on"
	default:
		s.Since = since
	}
	if required != nil {
		s.Required = *required
	}
	used := filepath.Join(folder, rulesFile)
	if s.On {
		_ = os.WriteFile(used, nil, 0o600) // without it rules stay when port security is switched off
	}
	_, err = os.Stat(used)
	s.Rules = s.On || err == nil
	if s.Since != "" {
		logger.Warn("port security is off: VMs of this node can send with the addresses of others", "because", s.Since, "switch on", "rutter agent --port-security on")
	}
	return s, nil
}

// Ports is what status, metrics and traces read of port security, since a time. rules is
// the node's filter.
func (s *Security) Ports(rules *ports.Guard, since time.Time) ports.Source {
	if s.On {
		rules.SetMode(ports.Mode{Mode: desired.SecurityEnforced, Since: since, Required: s.Required})
		return rules
	}
	why := "rutter agent --port-security on switches it on"
	if s.Since != "" {
		why = s.Since + "; " + why
	}
	return ports.Without{As: ports.Mode{Mode: desired.SecurityOff, Since: since, Why: why}}
}

// madeWith returns whether the data folder was made with port security, and why not. It
// writes that down if it is new.
func madeWith(ctx context.Context, folder string, look func(context.Context) (plan.Snapshot, error)) (on bool, since string, err error) {
	path := filepath.Join(folder, securityFile)
	text, err := os.ReadFile(path)
	since = "the data folder was made by a version without it"
	switch word := strings.TrimSpace(string(text)); {
	case err == nil && word == "on":
		return true, "", nil
	case err == nil && word == "off":
		return false, since, nil
	case err == nil:
		return false, "", fmt.Errorf("%s has %q: write on or off there", path, word)
	}
	have, err := look(ctx)
	if err != nil {
		return false, "", err
	}
	on = true
	if _, err := os.Stat(filepath.Join(folder, "cache.db")); !errors.Is(err, fs.ErrNotExist) {
		on = false
	}
	for i := range have.Links {
		mark, ok := plan.ParseMark(have.Links[i].Alias)
		if !ok {
			continue
		}
		on = false
		if strings.HasPrefix(mark.Object, "bridge ") {
			on = true // the folder was lost, and not what the node runs with
			break
		}
	}
	word := "off"
	if on {
		word, since = "on", ""
	}
	// Without the file the next start decides by the kernel's links again.
	_ = os.WriteFile(path, []byte(word+"\n"), 0o600)
	return on, since, nil
}

// Filter is the kernel's filter of this thread's network namespace. It is opened when it is
// read, so that a kernel that gets nf_tables later has it then.
type Filter struct {
	mu    sync.Mutex // protects table
	table filter.Table
}

var _ filter.Table = (*Filter)(nil)

func (f *Filter) open(ctx context.Context) (filter.Table, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.table == nil {
		table, err := filter.Open(ctx)
		if err != nil {
			return nil, err
		}
		f.table = table
	}
	return f.table, nil
}

// Read implements filter.Table.
func (f *Filter) Read(ctx context.Context) (filter.State, error) {
	table, err := f.open(ctx)
	if err != nil {
		return filter.State{}, err
	}
	return table.Read(ctx)
}

// Apply implements filter.Table.
func (f *Filter) Apply(ctx context.Context, changes []filter.Change) []error {
	table, err := f.open(ctx)
	if err == nil {
		return table.Apply(ctx, changes)
	}
	errs := make([]error, len(changes))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// Counters implements filter.Table.
func (f *Filter) Counters(ctx context.Context) (filter.Counters, error) {
	table, err := f.open(ctx)
	if err != nil {
		return filter.Counters{}, err
	}
	return table.Counters(ctx)
}

// Close implements filter.Table.
func (f *Filter) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.table == nil {
		return nil
	}
	return f.table.Close()
}

// bridgeNetfilter are the settings with which the frames of bridges pass the rules of the
// node's own firewall (ip-sysctl.rst, "bridge-nf-call-").
var bridgeNetfilter = []string{"arptables", "iptables", "ip6tables"}

// securityTrouble lists what operators must know about port security.
func securityTrouble(s *Security, unsupported error, sysctl string) (lines []string) {
	if s.Since != "" {
		lines = append(lines, "port security is off, because "+s.Since+": VMs of this node can send with the addresses of others; rutter agent --port-security on switches it on")
	}
	if unsupported != nil {
		lines = append(lines, fmt.Sprintf("port security is on and has no effect, because rules are not required (--require-port-security=false): %v", unsupported))
	}
	var on []string
	for _, family := range bridgeNetfilter {
		text, err := os.ReadFile(filepath.Join(sysctl, "bridge-nf-call-"+family))
		if s.On && err == nil && strings.TrimSpace(string(text)) != "0" {
			on = append(on, "net.bridge.bridge-nf-call-"+family)
		}
	}
	if len(on) > 0 {
		lines = append(lines, strings.Join(on, ", ")+": frames between VMs pass this node's own firewall, which may drop them; set it to 0 (sysctl -w), or unload br_netfilter")
	}
	return lines
}

// sysctlFolder has the settings of bridges.
const sysctlFolder = "/proc/sys/net/bridge"

// managerOf is the manager of a system's kernel, once it is made.
type managerOf struct {
	mu      sync.Mutex
	manager *link.Manager
}

func (m *managerOf) set(manager *link.Manager) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.manager = manager
}

func (m *managerOf) unsupported() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.manager == nil {
		return nil
	}
	return m.manager.Unsupported()
}
