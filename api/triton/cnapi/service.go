package cnapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"rutter/api/auth/webcheck"
	"rutter/api/internal/rest"
	"rutter/api/reach"
	"rutter/api/triton/internal/provision"
	"rutter/log"
	"rutter/log/budget"
	"rutter/projections"
)

// Store is the log and its state, as this package needs them.
type Store interface {
	// Propose has a change decided and written by the leader, wherever it is. A
	// refusal stands in the result. After an error it may have been written.
	Propose(ctx context.Context, c *log.Change) (log.Result, error)
	// View calls fn with the state and the head that it is at, while nothing is applied.
	View(fn func(state *projections.State, head log.Cursor))
	// Changed is closed when more is applied than when it was called.
	Changed() <-chan struct{}
	// WaitSeq returns when this server has applied seq, or ctx ends.
	WaitSeq(ctx context.Context, seq log.Seq) error
	// Consistent returns when this server has applied all that was acknowledged
	// anywhere before the call.
	Consistent(ctx context.Context) (log.Seq, error)
	// Ready is nil when this server can serve; it answers at once, for probes.
	Ready() error
	// AwaitReady is Ready for reads and writes: it may wait a while for a leader.
	AwaitReady(ctx context.Context) error
	// Serving is nil, or why nothing of this server's state may be shown.
	Serving() error
}

// LastSign is when a CN last gave a sign of life: a session or a heartbeat.
type LastSign struct {
	CN log.UUID
	// Ago is negative if there was no sign in the leader's term.
	Ago    time.Duration
	Server string // that received it
}

// Config configures a Service. Store and NewID must be given.
type Config struct {
	Store Store
	// NewID draws the id of a change or a task: a UUID of version 7.
	NewID func() (log.UUID, error)
	// Beat is called when a CN proved that it is present. announces: the CN is not set
	// up and reports once a minute. nil: heartbeats have no effect.
	Beat func(cn log.UUID, announces bool)
	// LastSigns returns the last sign of each CN; nil: last_heartbeat is not shown.
	LastSigns func(ctx context.Context) ([]LastSign, error)
	// Self is the id of this server. Run is the number of its process, higher than that
	// of any earlier one. A server claims a task with both. Defaults: "", the clock.
	Self string
	Run  uint64
	// Leading reports whether this server leads; nil: it does.
	Leading func() bool
	// HTTP posts tasks to CNs without a Rutter agent; nil: they are not delivered, and
	// no address of a sysinfo is stored.
	HTTP *reach.Client
	// Asker returns the author of a request: the actor of changes, and what they may
	// write. nil: the service itself.
	Asker func(*http.Request) (actor string, by log.Author)
	// Programs reports whether a client may choose what runs on compute nodes; nil: each
	// client may.
	Programs func(*http.Request) bool
	// Ours reports whether a server's tasks are done by an agent of ours. It is for a
	// gateway: what concerns VMs of other servers it may hand on. nil: by the sysinfo.
	Ours func(server log.UUID) bool
	// Budgets bound the work that clients may ask for; nil: the defaults.
	Budgets budget.Set
	// Every is how often expired objects are searched. Default 1 s.
	Every time.Duration
	// KeepTasks and KeepTickets are how long ended tasks and tickets are kept. Defaults
	// 24 h and 1 h. MaxTasks bounds the ended tasks that are kept, independent of their
	// age. Default 10,000.
	KeepTasks, KeepTickets time.Duration
	MaxTasks               int
	Logger                 *slog.Logger // nil discards
	// Now tells the time; default time.Now.
	Now func() time.Time
	// Version is that of the program, for GET /info.
	Version string
}

// Bounds.
const (
	maxBody      = 1 << 20 // bytes of a request
	maxList      = 1000    // objects in one answer, and the default
	maxWait      = 2 * time.Hour
	maxReports   = 1024 // status reports that wait to be taken; more are dropped, the next comes within 60 s
	maxSoft      = 1 << 14
	maxPosts     = 64 // tasks that are being posted at once
	maxRemoved   = 256
	proposeTime  = 10 * time.Second
	wakeGather   = 10 * time.Millisecond // what changes within it wakes once
	defaultPort  = 5309                  // spec/cnapi.md §4.4
	defaultTasks = 10_000
)

// Service serves CNAPI. See the package comment for its concurrency.
type Service struct {
	cfg     Config
	store   Store
	logger  *slog.Logger
	table   *rest.Table
	reports chan report
	counts  counts
	places  placing
	room    provision.Room // for tickets
	begun   time.Time      // when the service was made

	mu       sync.Mutex            // protects what follows
	soft     map[log.UUID]soft     // what CNs said of memory and disks
	posting  map[log.UUID]struct{} // tasks that this server is delivering
	returned sync.WaitGroup        // their goroutines
}

// New returns a service. It starts nothing.
func New(cfg Config) (*Service, error) {
	if cfg.Store == nil || cfg.NewID == nil {
		return nil, errors.New("cnapi: Config lacks Store or NewID")
	}
	or := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	or(&cfg.Every, time.Second)
	or(&cfg.KeepTasks, 24*time.Hour)
	or(&cfg.KeepTickets, time.Hour)
	if cfg.MaxTasks == 0 {
		cfg.MaxTasks = defaultTasks
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Run == 0 {
		cfg.Run = uint64(cfg.Now().UnixNano())
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		cfg: cfg, store: cfg.Store, logger: cfg.Logger, reports: make(chan report, maxReports),
		begun: cfg.Now(), room: provision.TicketRoom, soft: make(map[log.UUID]soft), posting: make(map[log.UUID]struct{}),
		places: placing{turn: make(chan struct{}, 1), spent: budget.NewMeter(cfg.Budgets.Get(budget.Placements), time.Now)},
	}
	s.table = s.routes()
	return s, nil
}

// routes makes the handler's table from the endpoints.
func (s *Service) routes() *rest.Table {
	t := &rest.Table{
		Surface: "cnapi", Clients: webcheck.Triton,
		Wrap: rest.Bounded(maxBody, writeError),
		NoRoute: func(_ http.ResponseWriter, r *http.Request) error {
			return failure(http.StatusNotFound, log.CodeResourceNotFound, "%s %s does not exist", r.Method, r.URL.Path)
		},
		NoMethod: func(_ http.ResponseWriter, r *http.Request) error {
			return failure(http.StatusMethodNotAllowed, rest.CodeNoMethod, "%s is not allowed", r.Method)
		},
	}
	for _, e := range s.endpoints() {
		method, pattern, _ := strings.Cut(e.pattern, " ")
		t.Routes = append(t.Routes, rest.Route{Method: method, Pattern: pattern, Serve: s.answering(e)})
	}
	return t
}

// endpoint is one row of the table of all that is served.
type endpoint struct {
	pattern string // METHOD /path/{name}
	serve   rest.Endpoint
	// always: it is answered also by a server that cannot serve.
	always bool
}

// endpoints is everything that is served: there is no path beside it.
func (s *Service) endpoints() []endpoint {
	return []endpoint{
		{"GET /ping", s.ping, true},
		{"GET /info", s.info, false},
		{"GET /diagnostics", s.diagnostics, false},
		{"POST /allocate", s.allocate, false},
		{"POST /capacity", s.capacity, false},
		{"GET /servers", s.listServers, false},
		{"GET /servers/{server}", s.getServer, false},
		{"POST /servers/{server}", s.updateServer, false},
		{"PUT /servers/{server}", s.updateServer, false},
		{"DELETE /servers/{server}", s.deleteServer, false},
		{"POST /servers/{server}/sysinfo", s.postSysinfo, false},
		{"GET /servers/{server}/sysinfo", s.getSysinfo, false},
		{"POST /servers/{server}/events/heartbeat", s.heartbeat, false},
		{"POST /servers/{server}/events/status", s.status, false},
		{"PUT /servers/{server}/setup", s.setup, false},
		{"PUT /servers/{server}/nics", s.updateNICs, false},
		{"POST /servers/{server}/nics/update", s.startNamed("server_update_nics"), false},
		{"POST /servers/{server}/cn-agent/pause", s.agentControl(agentPause), false},
		{"POST /servers/{server}/cn-agent/resume", s.agentControl(agentResume), false},
		{"GET /platforms", s.listPlatforms, false},
		{"GET /boot/{server}", s.getBoot, false},
		{"PUT /boot/{server}", s.setBoot, false},
		{"POST /boot/{server}", s.setBoot, false},
		{"GET /servers/{server}/vms", s.listVMs, false},
		{"GET /servers/{server}/vms/{vm}", s.getVM, false},
		{"POST /servers/{server}/vms", s.createMachine, false},
		{"DELETE /servers/{server}/vms/{vm}", s.startVMTask("machine_destroy"), false},
		{"POST /servers/{server}/vms/{vm}/start", s.startVMTask("machine_boot"), false},
		{"POST /servers/{server}/vms/{vm}/stop", s.startVMTask("machine_shutdown"), false},
		{"POST /servers/{server}/vms/{vm}/reboot", s.startVMTask("machine_reboot"), false},
		{"POST /servers/{server}/vms/{vm}/kill", s.startVMTask("machine_kill"), false},
		{"POST /servers/{server}/vms/{vm}/update", s.startVMTask("machine_update"), false},
		{"POST /servers/{server}/vms/{vm}/reprovision", s.startVMTask("machine_reprovision"), false},
		{"POST /servers/{server}/tasks", s.startTask, false},
		{"POST /servers/{server}/nop", s.startNamed("nop"), false},
		{"POST /servers/{server}/ensure-image", s.ensureImage, false},
		{"POST /servers/{server}/sysinfo-refresh", s.startNamed("sysinfo"), false},
		{"POST /servers/{server}/execute", s.startNamed("command_execute"), false},
		{"POST /servers/{server}/reboot", s.reboot, false},
		{"GET /servers/{server}/task-history", s.listTasks, false},
		{"GET /tasks", s.listTasks, false},
		{"GET /tasks/{task}", s.getTask, false},
		{"GET /tasks/{task}/wait", s.waitTask, false},
		{"POST /servers/{server}/tickets", s.createTicket, false},
		{"GET /servers/{server}/tickets", s.listTickets, false},
		{"DELETE /servers/{server}/tickets", s.deleteTickets, false},
		{"GET /tickets/{ticket}", s.getTicket, false},
		{"GET /tickets/{ticket}/wait", s.waitTicket, false},
		{"PUT /tickets/{ticket}/release", s.releaseTicket, false},
		{"DELETE /tickets/{ticket}", s.deleteTicket, false},
	}
}

// Table is everything that the surface serves.
func (s *Service) Table() *rest.Table { return s.table }

// Handler serves the paths of CNAPI, at its root and without a gate.
func (s *Service) Handler() http.Handler { return s.table.Handler() }

// answering serves an endpoint, if this server can serve.
func (s *Service) answering(e endpoint) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !e.always {
			if err := s.ready(s.store.AwaitReady(r.Context())); err != nil {
				return err
			}
		}
		r, err := rest.NoteContent(r)
		if err != nil {
			return failure(http.StatusRequestEntityTooLarge, rest.CodeBadRequest, "the body cannot be read: %v", err)
		}
		return e.serve(w, r)
	}
}

// ready is nil, or the answer of a server that cannot serve; err is what the store said of it.
func (s *Service) ready(err error) error {
	if err := cmp.Or(s.store.Serving(), err); err != nil {
		return failure(http.StatusServiceUnavailable, rest.CodeUnavailable, "this server cannot serve: %v", err)
	}
	return nil
}

func (s *Service) ping(w http.ResponseWriter, r *http.Request) error {
	if err := s.ready(s.store.Ready()); err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusOK, map[string]any{"ready": true, "healthy": true, "services": map[string]string{"log": "online"}})
	return nil
}

// Run delivers tasks, sweeps, and processes status reports, until ctx ends; it returns
// nil when all of it has ended.
func (s *Service) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	parts.Go(func() { s.takeReports(ctx) })
	parts.Go(func() { s.upkeep(ctx) })
	parts.Wait()
	s.returned.Wait()
	return nil
}

func (s *Service) leading() bool { return s.cfg.Leading == nil || s.cfg.Leading() }

// serverOf is the CN that the path names.
func serverOf(r *http.Request) (log.UUID, error) { return pathID(r, "server") }

func pathID(r *http.Request, name string) (log.UUID, error) {
	text := strings.ToLower(r.PathValue(name))
	id, err := log.ParseUUID(text)
	if err != nil || id.IsZero() {
		return id, badField(name+"_uuid", "send a UUID of 36 characters", "%q is not a UUID", r.PathValue(name))
	}
	return id, nil
}
