package libvirt

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent/vmsource"
	"rutter/agent/vmsource/registered"
	"rutter/log"
)

// Registry keeps the registered VMs of this source; *registered.Source does.
type Registry interface {
	vmsource.Source
	Registrar
	// List returns those that are registered, with all of their NICs.
	List() []registered.VM
	// Delete removes a registration, with its NICs in the log.
	Delete(ctx context.Context, id log.UUID) error
	// Forget removes a registration. The log keeps the NICs: the VM is on another node.
	Forget(ctx context.Context, id log.UUID) error
	// DeleteNIC removes one NIC of a VM.
	DeleteNIC(ctx context.Context, id log.UUID, key string) error
	// Away keeps on disk whether a VM migrated to another node: registered.VM.Away.
	Away(id log.UUID, away bool) error
}

// Config configures a Source. Registry, Virsh.URI and Logger must be given.
type Config struct {
	Registry Registry
	Virsh    Virsh
	// Owner owns the domains whose metadata name none, and which no hook has registered.
	Owner log.UUID
	// PIDs is the folder of libvirt's pid files of domains, NAME.pid; "": DefaultPIDs.
	PIDs string
	// ScanEvery is the time between two full scans; 0: vmsource.DefaultScanEvery.
	ScanEvery time.Duration
	Logger    *slog.Logger
}

// DefaultPIDs is where the libvirtd of qemu:///system keeps its pid files.
const DefaultPIDs = "/run/libvirt/qemu"

// The pauses between attempts to reach libvirt, which double from the first to the last.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// settles is how long after an event libvirt is asked, so that those that come together are
// one question.
const settles = 50 * time.Millisecond

// putTakes bounds one change of a registration by a scan.
const putTakes = 20 * time.Second

// Source is the registered VMs of libvirt, kept in step with what virsh tells: states that
// no hook tells, domains that were defined or undefined, and what happened while the agent
// was away. While libvirt does not answer, its VMs stay as they were, and its status is not
// complete.
type Source struct {
	cfg  Config
	wake chan struct{} // a scan is due

	mu      sync.Mutex // protects what follows
	due     bool       // all domains are to be read again
	touched map[string]fate
	domains map[log.UUID]Domain // as they were read last
	trouble string              // why libvirt does not answer; "": it does
	bad     map[string]vmsource.Aside
	failed  []vmsource.Failure
	scans   int
	events  uint64
	last    time.Time
}

// fate is what events have said of a domain since the last scan.
type fate struct{ migrated, undefined bool }

// maxTouched bounds the domains whose events are kept between two scans; with more all are
// read again.
const maxTouched = 10_000

// New returns a Source.
func New(cfg Config) *Source {
	if cfg.PIDs == "" {
		cfg.PIDs = DefaultPIDs
	}
	if cfg.ScanEvery == 0 {
		cfg.ScanEvery = vmsource.DefaultScanEvery
	}
	return &Source{
		cfg: cfg, wake: make(chan struct{}, 1), due: true, trouble: "it was not asked yet",
		touched: make(map[string]fate), domains: make(map[log.UUID]Domain), bad: make(map[string]vmsource.Aside),
	}
}

// Name implements vmsource.Source.
func (s *Source) Name() string { return s.cfg.Registry.Name() }

// Scan implements vmsource.Source.
func (s *Source) Scan() {
	s.cfg.Registry.Scan()
	s.mu.Lock()
	s.due = true
	s.mu.Unlock()
	s.rouse()
}

func (s *Source) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Status implements vmsource.Source.
func (s *Source) Status() vmsource.Status {
	status := s.cfg.Registry.Status()
	s.mu.Lock()
	defer s.mu.Unlock()
	status.Scans, status.LastScan, status.Events = s.scans, s.last, s.events
	status.Errors = append(status.Errors, s.failed...)
	for _, a := range s.bad {
		status.Aside = append(status.Aside, a)
	}
	if s.trouble != "" {
		status.Complete = false
		status.State = fmt.Sprintf("libvirt at %s does not answer, so its VMs are as they were: %s", s.cfg.Virsh.URI, s.trouble)
	}
	return status
}

// Run implements vmsource.Source.
func (s *Source) Run(ctx context.Context, sink vmsource.Sink) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.cfg.Registry.Run(ctx, sink) })
	g.Go(func() error { return s.listen(ctx) })
	g.Go(func() error { return s.scanning(ctx) })
	return g.Wait()
}

// listen keeps a virsh that tells events, until ctx ends.
func (s *Source) listen(ctx context.Context) error {
	pause := firstPause
	for ctx.Err() == nil {
		err := s.cfg.Virsh.Events(ctx, func() {
			pause = firstPause
			s.Scan()
		}, s.observed)
		if ctx.Err() != nil {
			break
		}
		s.answers(err)
		if !wait(ctx, pause) {
			break
		}
		pause = longer(pause)
	}
	return ctx.Err()
}

// longer is the pause after a pause.
func longer(pause time.Duration) time.Duration { return min(2*pause, lastPause) }

// answers keeps whether libvirt answers.
func (s *Source) answers(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
		s.failed = vmsource.KeepLast(s.failed, vmsource.Failure{Date: time.Now(), Err: text})
	}
	if (s.trouble == "") != (text == "") {
		s.cfg.Logger.Info("libvirt", "uri", s.cfg.Virsh.URI, "answers", text == "", "error", text)
	}
	s.trouble = text
}

// observed is called for each event.
func (s *Source) observed(e Event) {
	s.mu.Lock()
	s.events++
	f := s.touched[e.Domain]
	f.migrated = f.migrated || e.Detail == "Migrated" && e.Type != "Resumed" && e.Type != "Started"
	f.undefined = f.undefined || e.Type == "Undefined"
	if _, has := s.touched[e.Domain]; has || len(s.touched) < maxTouched {
		s.touched[e.Domain] = f
	} else {
		s.due = true
	}
	s.mu.Unlock()
	s.rouse()
}

// scanning scans when it is due, until ctx ends.
func (s *Source) scanning(ctx context.Context) error {
	every := time.NewTicker(s.cfg.ScanEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
			s.Scan()
			continue
		case <-s.wake:
		}
		if !wait(ctx, settles) {
			return ctx.Err()
		}
		if err := s.scan(ctx); ctx.Err() == nil {
			s.answers(err)
		}
	}
}

// scan asks libvirt for its domains once, and changes the registrations that differ. An
// error says that libvirt did not answer; then nothing was taken away.
func (s *Source) scan(ctx context.Context) error {
	s.mu.Lock()
	full, touched := s.due, s.touched
	s.due, s.touched = false, make(map[string]fate)
	s.mu.Unlock()
	before := byUUID(s.cfg.Registry.List())
	list, err := s.cfg.Virsh.List(ctx)
	if err == nil {
		err = s.read(ctx, list, full, touched)
	}
	if err != nil {
		s.again(touched)
		return err
	}
	if err := s.left(list, before, touched); err != nil {
		s.again(touched)
		return err
	}
	there := make(map[log.UUID]bool)
	for _, l := range list {
		there[l.UUID] = true
		s.step(l.UUID, l.Name, s.follow(ctx, l, before))
	}
	for id, vm := range before {
		if !there[id] {
			s.step(id, vm.Alias, s.gone(ctx, vm, touched[vm.Alias]))
		}
	}
	s.mu.Lock()
	s.scans, s.last = s.scans+1, time.Now()
	s.mu.Unlock()
	return nil
}

// again has what a failed scan was about scanned again.
func (s *Source) again(touched map[string]fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = true
	for name, before := range touched {
		f := s.touched[name]
		s.touched[name] = fate{migrated: f.migrated || before.migrated, undefined: f.undefined || before.undefined}
	}
}

// left keeps on disk which VMs have migrated to another node. One that runs here again is
// registered anew by follow.
func (s *Source) left(list []Listed, before map[log.UUID]registered.VM, touched map[string]fate) error {
	away := make(map[log.UUID]bool)
	for id, vm := range before {
		away[id] = vm.Away || touched[vm.Alias].migrated
	}
	for _, l := range list {
		switch {
		case l.State.Code == stateShutoff && l.State.Reason == shutoffMigrated:
			away[l.UUID] = true
		case l.State.Runs() && !l.State.moves():
			away[l.UUID] = before[l.UUID].Away
		}
	}
	for id, vm := range before {
		if vm.Away == away[id] {
			continue
		}
		if err := s.cfg.Registry.Away(id, away[id]); err != nil {
			return err
		}
		vm.Away = away[id]
		before[id] = vm
	}
	return nil
}

func byUUID(vms []registered.VM) map[log.UUID]registered.VM {
	all := make(map[log.UUID]registered.VM)
	for _, vm := range vms {
		all[vm.UUID] = vm
	}
	return all
}

// read reads the domains that are new or were touched, or all.
func (s *Source) read(ctx context.Context, list []Listed, full bool, touched map[string]fate) error {
	var ids []log.UUID
	known := make(map[log.UUID]Domain)
	s.mu.Lock()
	for _, l := range list {
		d, has := s.domains[l.UUID]
		if _, is := touched[l.Name]; full || is || !has || d.Name != l.Name {
			ids = append(ids, l.UUID)
		}
		known[l.UUID] = d
	}
	s.mu.Unlock()
	fresh, bad, err := s.cfg.Virsh.Dump(ctx, ids)
	if err != nil {
		return err
	}
	for id, d := range fresh {
		known[id] = d
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.domains = known
	for _, err := range bad {
		s.failed = vmsource.KeepLast(s.failed, vmsource.Failure{Date: time.Now(), Err: err.Error()})
	}
	return nil
}

// step keeps what was wrong with one domain.
func (s *Source) step(id log.UUID, name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, had := s.bad[id.String()]
	switch {
	case err == nil:
		delete(s.bad, id.String())
	case had && was.Reason == err.Error():
	case had || len(s.bad) < vmsource.MaxAside:
		s.bad[id.String()] = vmsource.Aside{Name: name, UUID: id, Reason: err.Error(), Since: time.Now()}
		s.cfg.Logger.Warn("libvirt", "domain", name, "uuid", id, "error", err)
	}
}

// follow makes the registration of one domain what libvirt says. before are the
// registrations before libvirt was asked: what a hook has changed since is newer.
func (s *Source) follow(ctx context.Context, l Listed, before map[log.UUID]registered.VM) error {
	s.mu.Lock()
	d := s.domains[l.UUID]
	s.mu.Unlock()
	vm, known := before[l.UUID]
	if len(d.NICs) == 0 && !known {
		return nil
	}
	if l.State.moves() {
		return nil // its hook, or the next event, says more
	}
	if l.State.Code == stateShutoff && l.State.Reason == shutoffMigrated {
		return nil // the node that it runs on reports it
	}
	state := registered.StateStopped
	if l.State.Runs() {
		state = registered.StateRunning
	}
	if known && !(vm.Away && l.State.Runs()) && vm.State == state && vm.RunState == l.State.Word() && same(vm, d) {
		return s.trim(ctx, vm, d, l.State)
	}
	if now, has := byUUID(s.cfg.Registry.List())[l.UUID]; has != known || now.State != vm.State || now.RunState != vm.RunState {
		s.rouse()
		return nil
	}
	r := d.Registration(state, s.ownerOf(known))
	r.RunState = l.State.Word()
	if state == registered.StateRunning {
		r.PID = s.pid(l.Name)
	} else {
		status := l.State.ExitStatus()
		r.ExitStatus = &status
	}
	ctx, cancel := context.WithTimeout(ctx, putTakes)
	defer cancel()
	_, err := s.cfg.Registry.Put(ctx, l.UUID, r, registered.Wait{For: registered.WaitNone, Within: putTakes * 9 / 10})
	return err
}

// ownerOf is the owner of a domain whose metadata name none: a registration keeps its own.
func (s *Source) ownerOf(known bool) log.UUID {
	if known {
		return log.UUID{}
	}
	return s.cfg.Owner
}

// same reports whether a registration has what the domain has.
func same(vm registered.VM, d Domain) bool {
	if vm.Alias != d.Name {
		return false
	}
	for _, n := range d.NICs {
		if has := vm.NIC(n.Key()); has == nil || has.Device != "" && has.Device != n.Device {
			return false
		}
	}
	return true
}

// trim removes the NICs that a domain has no more, once it does not run: the definition of
// one that runs may still have them.
func (s *Source) trim(ctx context.Context, vm registered.VM, d Domain, state State) error {
	if state.Runs() || d.UUID != vm.UUID {
		return nil
	}
	has := make(map[string]bool)
	for _, n := range d.NICs {
		has[n.Key()] = true
	}
	for _, n := range vm.NICs {
		if has[n.Key] {
			continue
		}
		if err := s.cfg.Registry.DeleteNIC(ctx, vm.UUID, n.Key); err != nil {
			return err
		}
	}
	return nil
}

// gone is for a registered VM that libvirt has not any more. Its NICs go with it if events
// told that it was undefined, and stay in the log if it migrated. If neither was told, it
// may have migrated: then it is stopped here, and an operator says what it is.
func (s *Source) gone(ctx context.Context, vm registered.VM, f fate) error {
	ctx, cancel := context.WithTimeout(ctx, putTakes)
	defer cancel()
	switch {
	case vm.Away:
		return s.cfg.Registry.Forget(ctx, vm.UUID)
	case f.undefined:
		return s.cfg.Registry.Delete(ctx, vm.UUID)
	}
	if vm.State != registered.StateStopped {
		if _, err := s.cfg.Registry.Put(ctx, vm.UUID, registered.Registration{State: registered.StateStopped}, registered.Wait{For: registered.WaitNone}); err != nil {
			return err
		}
	}
	return fmt.Errorf("libvirt has no such domain any more, and did not say that it was undefined: it may be on another node. If it is not, rutter vm delete %s removes it and its NICs", vm.UUID)
}

// pid is the process of a domain that runs; 0: unknown.
func (s *Source) pid(name string) int {
	text, err := os.ReadFile(filepath.Join(s.cfg.PIDs, filepath.Base(name)+".pid"))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text))) // 0: another program's file
	return n
}

// Control implements vmsource.Controlled.
func (s *Source) Control() (vmsource.Control, error) { return control{s.cfg.Virsh}, nil }

type control struct{ virsh Virsh }

// Start implements vmsource.Control.
func (c control) Start(ctx context.Context, vm log.UUID) error {
	return c.virsh.Domain(ctx, vm, "start")
}

// Stop implements vmsource.Control.
func (c control) Stop(ctx context.Context, vm log.UUID, force bool) error {
	if force {
		return c.virsh.Domain(ctx, vm, "destroy")
	}
	return c.virsh.Domain(ctx, vm, "shutdown")
}

// Reboot implements vmsource.Rebooter.
func (c control) Reboot(ctx context.Context, vm log.UUID) error {
	return c.virsh.Domain(ctx, vm, "reboot")
}

// wait waits; false: ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
