package manifests

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource"
	"rutter/log"
)

// Bounds and times of a Folder.
const (
	// maxManifests bounds the VMs of one folder; more are put aside.
	maxManifests = 20_000
	// goneAfter is how long a manifest must be missing before it counts as removed:
	// editors move the old file away before they write the new one.
	goneAfter = 5 * time.Millisecond
	// publishEvery and publishBurst bound how often one VM is reported: a few changes
	// at once, then one each 50 ms, however often it changes.
	publishEvery = 50 * time.Millisecond
	publishBurst = 4
	// missingEvery is how often a missing folder is looked for.
	missingEvery = 250 * time.Millisecond
	// mountsEvery is how often all namespaces are inspected while mounts come and go.
	mountsEvery = 250 * time.Millisecond
	// scanSlice is how many manifests a full scan inspects between events.
	scanSlice = 32
)

// Config configures a Folder. Manifests must be given; other zeros mean
// the defaults.
type Config struct {
	// Manifests is the folder of manifests, UUID.json each. A manifest must be written
	// elsewhere and renamed into it, or closed after writing. Names that begin with a
	// dot or do not end in .json are ignored.
	Manifests string
	// PIDs is the folder of UUID.pid, each with the process number of a VM's init
	// process. Default /run/rutter/vms.
	PIDs string
	// NetNS is the folder of named network namespaces (ip-netns(8)): ZONENAME.
	// Default /run/netns.
	NetNS string
	// Cgroup is the folder of the VMs' cgroups, UUID each. Default DefaultCgroup.
	Cgroup string
	// Machines is where systemd-machined keeps its machines. Default
	// /run/systemd/machines.
	Machines string
	// ScanEvery is how often everything is inspected, in case events missed something.
	// Default 5 min.
	ScanEvery time.Duration
	// CN is the compute node, shown as the VMs' server_uuid. Zero: it is not shown.
	CN log.UUID
	// Logger; nil discards.
	Logger *slog.Logger
}

// The folders that a Folder watches.
type rootKind int

const (
	rootManifests rootKind = iota
	rootPIDs
	rootNetNS
	rootCgroup
	rootMachines
	roots
)

// root is one of them; its wd is -1 while it is not there.
type root struct {
	path  string
	wd    int32
	ever  bool   // it has existed
	cause string // why it does not exist
}

// Folder is the source of VMs that manifests in a folder describe. What really runs is
// read from the system (manifest.go, system.go, addresses.go). Only Scan and Status may
// be called from goroutines other than Run's.
type Folder struct {
	cfg      Config
	find     system.Finder
	scanning atomic.Bool            // a full scan is requested
	current  atomic.Pointer[poller] // of the last Run
	machines machineChanges

	// The rest belongs to Run's goroutine.
	poll          *poller
	net           *addressSockets // nil: addresses cannot be read
	roots         [roots]root
	sink          vmsource.Sink
	byFile        map[string]*vmRecord // by the name of the manifest
	byUUID        map[log.UUID]*vmRecord
	byZone        map[string]*vmRecord
	byFD          map[int]*vmRecord   // by pidfd
	byEndedFD     map[int]*vmRecord   // by the pidfd of a process that ended and is not reaped
	byCgroup      map[int32]*vmRecord // by inotify wd of the cgroup
	byNSID        map[int32]*vmRecord
	files         map[string]time.Time // manifests to be read, and when
	dirty         map[*vmRecord]bool   // VMs to be inspected
	awaiting      map[*vmRecord]bool   // VMs whose namespace has a file and is not mounted on it
	cameBackEmpty bool                 // the folder came back empty
	aside         map[string]asideFile
	unidentified  bool      // something aside may be about any VM
	mounts        time.Time // when all namespaces are inspected; zero: not needed
	missing       time.Time // when missing folders are looked for; zero: none
	loaded        bool
	scan          *scan // under way
	nextScan      time.Time
	seed          maphash.Seed
	scratch       []byte // buffer for texts that are not kept

	mu     sync.Mutex // protects status
	status vmsource.Status
}

// vmRecord is the state of one VM.
type vmRecord struct {
	uuid     log.UUID
	file     string
	zone     string
	text     []byte      // of the manifest, compact
	fresh    vmdoc.Value // the same, until it was inspected; then null
	nics     bool
	hardware bool      // its brand has virtual hardware
	modified time.Time // of the VM
	body     uint64    // hash of what was reported last; 0: nothing

	pid, pidfd  int // pidfd -1: none
	boot        time.Time
	exit        exit // of the last init process, while none runs
	endedPID    int
	endedFD     int       // its pidfd until it is reaped; -1: none
	machine     *machine  // while QEMU runs it; nil: not followed
	namespace   uint64    // inode of the namespace; 0: none
	nsid        int32     // -1: none
	cgroup      int32     // wd; -1: none
	nextPublish time.Time // the earliest time of the next report (GCRA's theoretical arrival time)
}

// asideFile is a manifest that is put aside; duplicate means that another manifest has
// the same VM.
type asideFile struct {
	vmsource.Aside
	duplicate bool
}

// New returns a source that has started nothing.
func New(cfg Config) (*Folder, error) {
	if cfg.Manifests == "" {
		return nil, system.ErrNoManifests
	}
	cfg.PIDs = cmp.Or(cfg.PIDs, system.DefaultPIDs)
	cfg.NetNS = cmp.Or(cfg.NetNS, system.DefaultNetNS)
	cfg.Cgroup = cmp.Or(cfg.Cgroup, system.DefaultCgroup())
	cfg.Machines = cmp.Or(cfg.Machines, "/run/systemd/machines")
	cfg.ScanEvery = cmp.Or(cfg.ScanEvery, vmsource.DefaultScanEvery)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Folder{
		cfg: cfg, find: system.Finder{PIDs: cfg.PIDs, Machines: cfg.Machines, Cgroup: cfg.Cgroup}, seed: maphash.MakeSeed(),
		byFile: make(map[string]*vmRecord), byUUID: make(map[log.UUID]*vmRecord), byZone: make(map[string]*vmRecord),
		byFD: make(map[int]*vmRecord), byEndedFD: make(map[int]*vmRecord), byCgroup: make(map[int32]*vmRecord), byNSID: make(map[int32]*vmRecord),
		files: make(map[string]time.Time), dirty: make(map[*vmRecord]bool), awaiting: make(map[*vmRecord]bool), aside: make(map[string]asideFile),
	}
	for kind, path := range []string{cfg.Manifests, cfg.PIDs, cfg.NetNS, cfg.Cgroup, cfg.Machines} {
		f.roots[kind] = root{path: path, wd: -1}
	}
	f.status = vmsource.Status{Name: f.Name(), State: "stopped", Aside: []vmsource.Aside{}, Log: []vmsource.Refresh{}, Errors: []vmsource.Failure{}}
	return f, nil
}

// Name implements Source.
func (f *Folder) Name() string { return "folder " + f.cfg.Manifests }

// Scan implements Source.
func (f *Folder) Scan() {
	f.scanning.Store(true)
	if p := f.current.Load(); p != nil {
		p.wake()
	}
}

// Run implements Source.
func (f *Folder) Run(ctx context.Context, sink vmsource.Sink) (err error) {
	if f.poll, err = openPoller(); err != nil {
		return err
	}
	f.sink = sink
	f.current.Store(f.poll)
	defer f.closeNet()
	if err := f.openNet(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, f.poll.wake)
	defer stop()
	f.nextScan = time.Now().Add(f.cfg.ScanEvery)
	f.attachMissing(time.Now())
	f.report("loading")
	for {
		now := time.Now()
		next := f.work(now)
		if !f.loaded && len(f.files) == 0 && len(f.dirty) == 0 {
			f.loaded = true
			f.sink.Loaded()
		}
		f.report("")
		if err := f.listen(time.Until(next)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// openNet opens the sockets for addresses. Without the permission, the addresses are
// those of the manifests, and the status reports that.
func (f *Folder) openNet() error {
	net, err := openAddressSockets()
	if err != nil {
		f.skip("addresses: " + err.Error() + ": CAP_NET_ADMIN and CAP_NET_BROADCAST are needed; those of the manifests are shown")
		return nil
	}
	f.net = net
	return f.poll.add(net.notifications, unix.EPOLLIN)
}

// closeNet frees what Run opened.
func (f *Folder) closeNet() {
	for _, fds := range []map[int]*vmRecord{f.byFD, f.byEndedFD} {
		for fd := range fds {
			_ = unix.Close(fd)
		}
	}
	for _, vm := range f.byUUID {
		if vm.machine != nil {
			vm.machine.close()
		}
	}
	if f.net != nil {
		f.net.close()
	}
	f.poll.close()
	f.report("stopped")
}

// work does what is due, and returns when more will be.
func (f *Folder) work(now time.Time) time.Time {
	next := now.Add(time.Hour)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	if !f.missing.IsZero() && !f.missing.After(now) {
		f.attachMissing(now)
	}
	if !f.mounts.IsZero() && !f.mounts.After(now) {
		f.mounts = time.Time{}
		f.lookForNamespaces()
	}
	for _, id := range f.machines.take() {
		f.mark(f.byUUID[id])
	}
	for name, due := range f.files {
		if due.After(now) {
			sooner(due)
			continue
		}
		f.readFile(name, now)
	}
	for _, due := range f.files { // what reading has found
		sooner(due)
	}
	for vm := range f.dirty {
		if wait := vm.nextPublish.Add(-publishBurst * publishEvery); f.loaded && wait.After(now) {
			sooner(wait)
			continue
		}
		delete(f.dirty, vm)
		f.inspect(vm, now)
	}
	f.beginScan(now)
	if f.scan != nil {
		f.scanOn(now)
	}
	switch {
	case f.scan == nil:
		sooner(f.nextScan)
	case f.mounts.IsZero():
		sooner(now) // the next slice, after any events
	}
	sooner(f.missing)
	sooner(f.mounts)
	return next
}

// report publishes the status; state "" changes only the folder's part.
func (f *Folder) report(state string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &f.status
	s.Waiting = len(f.dirty) + len(f.files)
	s.Complete = f.loaded && !f.cameBackEmpty && f.roots[rootManifests].wd >= 0 && state != "stopped" && !f.unidentified
	switch at := &f.roots[rootManifests]; {
	case state != "":
		s.State = state
	case at.wd < 0 && at.ever:
		s.State = "the folder vanished, its VMs are kept as they were: " + at.cause
	case at.wd < 0:
		s.State = "no folder: " + at.cause
	case f.scan != nil:
		s.State = "scanning"
	default:
		s.State = "watching"
	}
}

// skip records what this source lacks, and why. Each is logged once.
func (f *Folder) skip(reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, known := range f.status.Skips {
		if known == reason {
			return
		}
	}
	if len(f.status.Skips) < vmsource.KeptRefreshes*2 {
		f.status.Skips = append(f.status.Skips, reason)
	}
}

// fail records trouble after which the source continues.
func (f *Folder) fail(err error) {
	f.cfg.Logger.Warn("VM folder", "folder", f.cfg.Manifests, "error", err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.Errors = vmsource.KeepLast(f.status.Errors, vmsource.Failure{Date: time.Now().UTC(), Err: err.Error()})
}

// Status implements Source.
func (f *Folder) Status() vmsource.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.status
	s.Skips = append([]string(nil), s.Skips...)
	s.Aside = append([]vmsource.Aside{}, s.Aside...)
	return s
}
