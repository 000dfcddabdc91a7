package libvirt

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"rutter/log"
)

// Bounds of what virsh may do.
const (
	// maxOutput is how much one virsh may print, in bytes.
	maxOutput = 64 << 20
	// maxErrors is how much of its errors is kept, in bytes.
	maxErrors = 4 << 10
	// maxEventLine is the length of one line about an event, in bytes; longer ones are cut.
	maxEventLine = 4 << 10
	// virshTakes is how long virsh may take. It waits for the hooks of a domain, so this is
	// more than they may take.
	virshTakes = time.Minute
	// maxDumped is how many domains one virsh dumps.
	maxDumped = 50
)

// ErrVirsh: virsh failed, and says why.
var ErrVirsh = errors.New("libvirt: virsh failed")

// Virsh asks one libvirtd by virsh(1). Its methods may be called from any goroutine.
type Virsh struct {
	URI string // of the libvirtd, as qemu:///system
	// Program is virsh itself; "": found by the PATH.
	Program string
	// Within bounds one question; 0: virshTakes.
	Within time.Duration
}

// State is a domain's state and its reason, as virsh domstats gives them: libvirt's
// virDomainState and the enumerations of its reasons (libvirt-domain.h).
type State struct{ Code, Reason int }

// States of virDomainState, and the reasons of some.
const (
	stateRunning     = 1
	stateBlocked     = 2
	statePaused      = 3
	stateShutdown    = 4 // being shut down
	stateShutoff     = 5
	stateCrashed     = 6 // its QEMU is kept (on_crash preserve)
	statePMSuspended = 7

	shutoffCrashed  = 3 // VIR_DOMAIN_SHUTOFF_CRASHED
	shutoffMigrated = 4 // VIR_DOMAIN_SHUTOFF_MIGRATED
	shutoffFailed   = 6 // VIR_DOMAIN_SHUTOFF_FAILED: it did not start

	pausedMigration  = 2  // VIR_DOMAIN_PAUSED_MIGRATION: it is being migrated
	pausedStartingUp = 11 // VIR_DOMAIN_PAUSED_STARTING_UP
)

// Runs reports whether the domain has a QEMU that runs, or continues when it is told to.
func (s State) Runs() bool {
	switch s.Code {
	case stateRunning, stateBlocked, statePaused, stateShutdown, statePMSuspended:
		return true
	}
	return false
}

// Word is what the domain does, where its running or not does not say it: "" otherwise.
func (s State) Word() string {
	switch s.Code {
	case statePaused:
		return "paused"
	case statePMSuspended:
		return "pmsuspended"
	case stateCrashed:
		return "crashed"
	case stateShutoff:
		if s.Reason == shutoffCrashed {
			return "crashed"
		}
	}
	return ""
}

// moves reports whether the domain is paused because it starts, or migrates from or to here:
// its next state says more.
func (s State) moves() bool {
	return s.Code == statePaused && (s.Reason == pausedMigration || s.Reason == pausedStartingUp)
}

// ExitStatus is that of a domain that does not run: 1 if it crashed or did not start.
func (s State) ExitStatus() int {
	if s.Code == stateCrashed || s.Code == stateShutoff && (s.Reason == shutoffCrashed || s.Reason == shutoffFailed) {
		return 1
	}
	return 0
}

// Listed is a domain that libvirt has, running or not.
type Listed struct {
	UUID  log.UUID
	Name  string
	State State
}

// List returns all domains with their states. A domain that comes or goes meanwhile may be
// missing.
func (v Virsh) List(ctx context.Context) ([]Listed, error) {
	text, err := v.run(ctx, "list --all --uuid --name; domstats --state --nowait")
	if err != nil {
		return nil, err
	}
	return parseList(text)
}

// parseList reads lines of a UUID and a name, and then of each domain its name and state:
//
//	5f4ab3c8-9e8d-4f6c-8a0e-6a4f4c0a8d11 web0
//
//	Domain: 'web0'
//	  state.state=1
//	  state.reason=2
func parseList(text []byte) ([]Listed, error) {
	states, name := make(map[string]State), ""
	ids := make(map[string]log.UUID)
	var order []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, "=")
		number, numberErr := strconv.Atoi(value)
		s := states[name]
		switch {
		case strings.HasPrefix(line, "Domain: '") && strings.HasSuffix(line, "'"):
			name = line[len("Domain: '") : len(line)-1]
			continue
		case field == "  state.state":
			s.Code = number
		case field == "  state.reason":
			s.Reason = number
		case strings.TrimSpace(line) == "":
			continue
		default:
			id, err := log.ParseUUID(line[:min(36, len(line))])
			if err != nil || len(line) < 38 || line[36] != ' ' {
				return nil, fmt.Errorf("%w: its list has the line %q, where a UUID and a name are expected", ErrVirsh, line)
			}
			order = append(order, line[37:])
			ids[line[37:]] = id
			continue
		}
		if numberErr != nil {
			return nil, fmt.Errorf("%w: its list has the line %q, where a number is expected", ErrVirsh, line)
		}
		states[name] = s
	}
	var all []Listed
	for _, name := range order {
		if s, has := states[name]; has {
			all = append(all, Listed{ids[name], name, s})
		}
	}
	return all, nil
}

// Dump returns the XML of domains, by UUID. One that is gone meanwhile is missing, and one
// that cannot be read is an error in bad.
func (v Virsh) Dump(ctx context.Context, ids []log.UUID) (all map[log.UUID]Domain, bad []error, err error) {
	all = make(map[log.UUID]Domain)
	for len(ids) > 0 {
		some := ids[:min(maxDumped, len(ids))]
		ids = ids[len(some):]
		var script strings.Builder
		for _, id := range some {
			fmt.Fprintf(&script, "dumpxml %s; ", id)
		}
		text, err := v.run(ctx, script.String()+"uri") // succeeds, whatever is gone
		if err != nil {
			return nil, nil, err
		}
		for _, one := range documents(text) {
			d, err := ParseDomain(bytes.NewReader(one))
			if err != nil {
				bad = append(bad, err)
				continue
			}
			all[d.UUID] = d
		}
	}
	return all, bad, nil
}

// documents are the elements of the first level in text.
func documents(text []byte) (all [][]byte) {
	decoder := xml.NewDecoder(bytes.NewReader(text))
	decoder.Strict = true
	depth, from := 0, int64(0)
	for {
		before := decoder.InputOffset()
		token, err := decoder.RawToken()
		if err != nil {
			return all
		}
		switch token.(type) {
		case xml.StartElement:
			if depth == 0 {
				from = before
			}
			depth++
		case xml.EndElement:
			if depth--; depth == 0 {
				all = append(all, text[from:decoder.InputOffset()])
			}
		}
	}
}

// Domain runs a command about one domain, such as start or destroy.
func (v Virsh) Domain(ctx context.Context, id log.UUID, command ...string) error {
	_, err := v.run(ctx, append(command, id.String())...)
	return err
}

// command is a virsh that is killed when ctx ends. Its language is that of the program.
func (v Virsh) command(ctx context.Context, args ...string) *exec.Cmd {
	program := v.Program
	if program == "" {
		program = "virsh"
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"--connect", v.URI}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "LANGUAGE=")
	cmd.WaitDelay = time.Second
	return cmd
}

// run runs one virsh and returns what it printed.
func (v Virsh) run(ctx context.Context, args ...string) ([]byte, error) {
	within := cmp.Or(v.Within, virshTakes)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	out, failed := &capped{most: maxOutput}, &capped{most: maxErrors}
	cmd := v.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = out, failed
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %s did not answer in %s", ErrVirsh, v.URI, within)
	case err != nil:
		return nil, fmt.Errorf("%w: %w: %s", ErrVirsh, err, failed.line())
	case out.cut:
		return nil, fmt.Errorf("%w: it printed more than %d bytes", ErrVirsh, maxOutput)
	}
	return out.text, nil
}

// capped keeps the first bytes that are written to it.
type capped struct {
	text []byte
	most int
	cut  bool
}

// Write implements io.Writer; it takes all.
func (c *capped) Write(b []byte) (int, error) {
	keep := min(len(b), c.most-len(c.text))
	c.text = append(c.text, b[:keep]...)
	c.cut = c.cut || keep < len(b)
	return len(b), nil
}

// line is the text as one line.
func (c *capped) line() string { return strings.Join(strings.Fields(string(c.text)), " ") }

// Event is what virsh event tells of a domain's life.
type Event struct {
	Domain string // its name
	Type   string // as virsh prints it: Defined, Undefined, Started, Suspended, Resumed, Stopped, Shutdown, PMSuspended, Crashed
	Detail string // such as Booted or Migrated
}

// Events tells the events of all domains until ctx ends or virsh does. ready is called once,
// when virsh has asked for the events.
func (v Virsh) Events(ctx context.Context, ready func(), tell func(Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := &capped{most: maxErrors}
	// The first command is there so that its answer says that libvirt answers.
	cmd := v.command(ctx, "uri; event --event lifecycle --loop")
	cmd.Stderr = failed
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrVirsh, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", ErrVirsh, err)
	}
	readErr := readEvents(out, ready, tell)
	cancel()
	err = cmd.Wait()
	return fmt.Errorf("%w: it tells no events any more: %w: %s", ErrVirsh, errors.Join(readErr, err), failed.line())
}

// readEvents reads lines of virsh event:
//
//	event 'lifecycle' for domain 'web0': Started Booted
func readEvents(r io.Reader, ready func(), tell func(Event)) error {
	lines := bufio.NewReaderSize(r, maxEventLine)
	for first := true; ; {
		line, err := lines.ReadSlice('\n')
		text := strings.TrimSpace(string(line))
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil {
			return err
		}
		if first && text != "" {
			first = false
			ready()
		}
		if e, ok := parseEvent(text); ok {
			tell(e)
		}
	}
}

// parseEvent reads one line.
func parseEvent(line string) (e Event, ok bool) {
	rest, ok := strings.CutPrefix(line, "event 'lifecycle' for domain '")
	end := strings.LastIndex(rest, "': ")
	if !ok || end < 0 {
		return e, false
	}
	e.Domain = rest[:end]
	e.Type, e.Detail, _ = strings.Cut(rest[end+len("': "):], " ")
	return e, true
}
