package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"rutter/api"
	"rutter/api/auth/audit"
	"rutter/api/auth/matrix"
	"rutter/api/auth/tlsgate"
	"rutter/api/auth/webcheck"
	"rutter/api/liveness"
	"rutter/api/support"
	"rutter/api/triton/changefeed"
	"rutter/api/triton/cnapi"
	"rutter/api/triton/netreport"
	"rutter/api/triton/vmapi"
	"rutter/api/vmm"
	"rutter/cmd/rutter/backup"
	"rutter/cmd/rutter/debugsocket"
	"rutter/cmd/rutter/messages"
	"rutter/cmd/rutter/serviceaddr"
	"rutter/cmd/rutter/storeapi"
	"rutter/cmd/rutter/svpview"
	"rutter/cmd/rutter/trust"
	"rutter/log"
	"rutter/log/budget"
	"rutter/projections"
	"rutter/raftstore"
	"rutter/varp"
)

// Options are the options of one server.
type Options struct {
	Store    raftstore.Config
	API, SVP string // addresses; SVP may be off
	Zone     string // name of the server's zone; "": none
	CNPort   int    // of the agents' CN API; 0: the default
	// CNNetworks are those in which servers send requests to compute nodes, beside the
	// network admin of the log (package reach).
	CNNetworks []netip.Prefix
	Insecure   bool
	TLS        string // folder of certificates; "": no TLS
	// Passphrase opens the keys of authorities in TLS, if they are encrypted.
	Passphrase string
	CertLife   time.Duration // of certificates that it issues; 0: pki.NodeLife
	// CertClock is the clock by which certificates begin and end for this server; nil: the
	// machine's, also while a drill moves the store's.
	CertClock func() time.Time
	// Jitter returns a number in [0, 1), a new one at each call, which spreads the renewals of its
	// own certificates; nil: trust.Jitter. Simulations draw it from a seed.
	Jitter  func() float64
	Budgets budget.Set
	// Hosts are the names and addresses by which clients may ask, besides those that the
	// server knows itself (webcheck.ParseHosts).
	Hosts  []string
	Triton TritonOptions
	// ServiceAddresses are handed among the servers: the leader has them. Listeners may
	// name them.
	ServiceAddresses []serviceaddr.Address
	Drill            *DrillClock // nil: the machine's clock
	// Backup is the schedule of backups. BackupLauncher is there if it has one.
	Backup         backup.Settings
	BackupLauncher *backup.Launcher
	Version        string
	// Listen opens the ports of the API, of SVP and of Triton's surfaces; nil: on this machine.
	// Simulations give a network of their own. The peer port is opened by Store.Network.
	Listen func(address string) (net.Listener, error)
	// Exit ends the process when its disk hangs and goroutines that wait for it cannot be awaited;
	// nil: os.Exit. A simulation runs several servers in one process.
	Exit func(code int)
	// Support has what the server says of itself to operators; nil: a source without log
	// lines and settings.
	Support *support.Source
	// Debug is the socket at which root gets the same, and profiles.
	Debug  debugsocket.Options
	Logger *slog.Logger // the server's name is added to it
}

// Server is one server: the store, its API and its SVP.
type Server struct {
	narrow underlayWatch
	cfg    Options
	store  *raftstore.Store
	api    *api.Server
	svp    *varp.Server // nil: off
	// shootdowns is the log of svp; nil: off.
	shootdowns *varp.Shootdowns
	// mappings are what svp answers lookups from.
	mappings *varp.Mappings

	fabric   *liveness.Fabric
	sessions *liveness.Table // of compute nodes that are connected to this server
	vmms     *vmm.Service
	// changefeed is Triton's, at /changefeeds.
	changefeed *changefeed.Service
	triton     *triton // nil until it is made
	gateways   *gateways
	cnapi      *cnapi.Service
	addresses  *serviceaddr.Service // nil: none is configured
	compare    *addressWatch
	backups    *backup.Schedule // nil: none are scheduled

	apiListener, svpListener net.Listener
	debug                    *debugsocket.Server // nil: off
	places                   *directory

	tls    *serverTLS // nil: none
	grants *grantFollower
	// audit records accepted identities and refused requests.
	audit *audit.Log
}

// hostSetting is the flag of Options.Hosts.
const hostSetting = "host-name"

// setDefaults fills in what is not set, and passes on what the parts share.
func (cfg *Options) setDefaults() {
	if cfg.Exit == nil {
		cfg.Exit = os.Exit
	}
	if cfg.Listen == nil {
		addresses := cfg.ServiceAddresses
		cfg.Listen = func(address string) (net.Listener, error) { return serviceaddr.Listen(addresses, address) }
	}
	cfg.Store.Logger, cfg.Triton.Hosts, cfg.Triton.listen = cfg.Logger, cfg.Hosts, cfg.Listen
	cfg.Support = supportOf(cfg)
}

// Open opens files and ports, and starts nothing.
func Open(cfg Options) (_ *Server, err error) {
	cfg.setDefaults()
	s := &Server{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err = s.listen(&cfg); err != nil {
		return nil, err
	}
	if s.store, err = raftstore.Open(cfg.Store); err != nil {
		return nil, err
	}
	logger := cfg.Logger.With("server", cfg.Store.ID)
	s.backups = newBackups(cfg, s.store, logger)
	backend := storeapi.Store{Store: s.store, Refused: storeapi.NewRefused(), Zone: cfg.Zone}
	if s.audit, err = audit.Open(audit.Config{Folder: cfg.Store.Dir}); err != nil {
		return nil, err
	}
	if s.fabric, s.sessions, err = newFabric(backend, logger); err != nil {
		return nil, err
	}
	if s.tls != nil {
		if err = s.tls.attach(backend, s.fabric); err != nil {
			return nil, err
		}
	}
	gate := newGate(backend, cfg.CNNetworks)
	s.compare = newAddressWatch(cfg.ServiceAddresses, peersAdapter{s.store}, logger)
	s.places = newDirectory(backend.Status, peersAdapter{s.store}, s.progress, cfg.TLS != "", cfg.Zone, cfg.API, s.apiListener.Addr(), s.store.Status().Address)
	answers := map[byte]func([]byte) ([]byte, error){askPlaces: s.answerPlaces, askAddresses: s.compare.answer, askAPI: s.places.answer}
	if s.vmms, err = newVMMService(backend, s.fabric, cfg.CNPort, gate, s.tls, answers, logger); err != nil {
		return nil, err
	}
	s.grants = s.newGrantFollower(backend)
	if s.changefeed, err = changefeed.New(changefeed.Config{Store: storeapi.SurfaceStore{Store: backend}, Logger: logger, Agents: s.sessions.Live, VM: func(id log.UUID, vm *log.VM) map[string]any { return vmapi.FormOfItem(backend.View, id, vm) }}); err != nil {
		return nil, err
	}
	if s.cnapi, err = newCNAPI(backend, s.fabric, gate, cfg.Budgets, cfg.Version, logger); err != nil {
		return nil, err
	}
	reports, err := netreport.New(netreport.Config{Store: storeapi.SurfaceStore{Store: backend}, Allowed: storeapi.SpeaksFor, Bound: storeapi.IsCN, Logger: logger})
	if err != nil {
		return nil, err
	}
	vms, err := vmapi.New(vmapi.Config{Store: storeapi.SurfaceStore{Store: backend}, NewID: backend.NewID, Actor: storeapi.ActorOf, Programs: mayChoosePrograms, Place: s.cnapi.Place, Changefeeds: s.changefeed.Table().Routes, Gone: storeapi.Gone(s.store), Logger: logger})
	if err != nil {
		return nil, err
	}
	if err = s.openTriton(cfg.Triton, vms.Table(), backend, logger); err != nil {
		return nil, err
	}
	s.addresses = newServiceAddresses(cfg.ServiceAddresses, s.store, logger)
	collectors := s.measured(backend)
	if s.svpListener != nil {
		if err = s.openSVP(cfg.TLS != "" && !onLoopback(s.svpListener), logger); err != nil {
			return nil, err
		}
		collectors = append(collectors, svpview.Metrics{Stats: s.svp.Stats})
	}
	if s.api, err = api.New(api.Config{
		Audit: s.audit, Budgets: cfg.Budgets, Meters: slices.Concat(s.store.Budgets(), s.tls.meters(), s.cnapi.Meters()),
		Store: alarmedStore{loadedStore{backend, s.mappings}, s.backups.Alarms}, NewID: backend.NewID, Cluster: s.store.Members(), Backups: backend, Scheduled: scheduled{s.backups}, Upgrader: storeapi.Upgrader{Membership: s.store.Members()}, Retainer: storeapi.Retainer{Store: s.store}, Past: storeapi.Past{Reader: s.store.Past()}, Logger: logger, Version: cfg.Version,
		Sessions: s.sessions, Fabric: s.fabric, VMMs: s.vmms, Age: s.store.Age, Collectors: append(collectors, s.narrow.collector(backend.View)),
		Names:    webcheck.Names{Configured: cfg.Hosts, Certificate: s.tls.leaf(), Setting: hostSetting},
		Warnings: func() []string { return s.warnings(cfg) },
		Lines:    s.addresses.Lines, CertificateEnd: s.tls.certificateEnd, Support: cfg.Support, Directory: s.places.places, Zone: cfg.Zone, Lagging: s.store.Lagging,
		Mounts: s.tls.mounted(append(append(napiMounts(s.triton.napi.Table()), cnapiMounts(s.cnapi.Table())...), api.Mount{Path: "/changefeeds", Table: s.changefeed.Table()},
			api.Mount{Path: "/reports", Table: reports.Table(), Strip: true}, api.Mount{Path: "/vmapi", Table: vms.Table(), Strip: true})),
	}); err != nil {
		return nil, err
	}
	return s, s.openDebug(&cfg, logger)
}

// newGrantFollower makes what follows the log's grants.
func (s *Server) newGrantFollower(store storeapi.Store) *grantFollower {
	return &grantFollower{
		view: func(fn func(*projections.State)) {
			store.View(func(state *projections.State, _ log.Cursor) { fn(state) })
		},
		cutOff:      func(match func(matrix.Identity) bool) int { return s.api.CutOff(match) },
		cutPrograms: func(match func(netip.Addr) bool) int { return s.triton.cutOff(match) },
	}
}

// warnings are what operators must see to.
func (s *Server) warnings(cfg Options) []string {
	return slices.Concat(s.tls.warnings(plaintext(cfg)), svpWarnings(cfg), s.triton.warnings(), s.gateways.warnings(), s.store.Clock().Alarms, cfg.Drill.warnings(), s.narrow.warnings(), s.addresses.Problems(), s.compare.warnings())
}

// measured are the collectors of the server's parts, but for those of the API and of SVP.
func (s *Server) measured(backend storeapi.Store) []prometheus.Collector {
	all := append(s.changefeed.Collectors(), newStoreMetrics(s.store.Status), s.alarms(), backend.Refused, backup.Metrics{Schedule: s.backups}, serviceaddr.Metrics{Service: s.addresses})
	return slices.Concat(all, messages.Collectors("rutter_"), s.tls.collectors(), s.triton.collectors(), s.gateways.collectors(), s.cnapi.Collectors())
}

// openTriton makes the surfaces for Triton's programs, with what is behind them, and opens
// their listeners.
func (s *Server) openTriton(cfg TritonOptions, vms *api.Surface, store storeapi.Store, logger *slog.Logger) (err error) {
	if s.triton, err = newTriton(cfg, storeapi.SurfaceStore{Store: store}, s.changefeed.Table(), logger); err != nil {
		return err
	}
	tables := map[string]*api.Surface{"napi": s.triton.napi.Table(), "cnapi": s.cnapi.Table(), "vmapi": vms}
	if s.gateways, err = newGateways(cfg, store, tables, logger); err != nil {
		return err
	}
	return s.triton.listen(tables, s.grants.of, s.enter)
}

// enter takes one of the API's request slots for a request on a Triton listener.
func (s *Server) enter(w http.ResponseWriter, r *http.Request, who matrix.Identity) (leave func(), ok bool) {
	return s.api.Enter(w, r, who)
}

// listen opens the ports of API and SVP, and gives raft its listener, with TLS if the
// server has it.
func (s *Server) listen(cfg *Options) (err error) {
	if cfg.Drill != nil {
		cfg.Store.Now = cfg.Drill.now
	}
	if cfg.TLS != "" {
		if s.tls, err = openServerTLS(cfg.TLS, cfg.Store.ID, cfg.Passphrase, cfg.CertClock, cfg.Logger.With("server", cfg.Store.ID)); err != nil {
			return err
		}
		s.tls.life, s.tls.budgets = cfg.CertLife, cfg.Budgets
		if s.tls.jitter = cfg.Jitter; cfg.Jitter == nil {
			s.tls.jitter = trust.Jitter
		}
		cfg.Store.Network = tlsgate.Network{Keeper: s.tls.peers, Through: cfg.Store.Network}
	}
	if s.apiListener, err = cfg.Listen(cfg.API); err != nil {
		return fmt.Errorf("API: %w (--listen names another address)", err)
	}
	if s.tls != nil {
		s.apiListener = s.tls.clients.Listener(s.apiListener, s.apiPort())
	}
	if cfg.SVP != "off" {
		if s.svpListener, err = cfg.Listen(cfg.SVP); err != nil {
			return fmt.Errorf("SVP: %w (--svp off, if another daemon holds the port)", err)
		}
	}
	return nil
}

// Run serves until ctx ends or a part fails, and returns when every part has ended. The
// API ends before the store, so requests that have begun can still be written.
func (s *Server) Run(ctx context.Context) error {
	storing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, serving := errgroup.WithContext(ctx)
	// If one part fails, all end, because a server must not run in part.
	fronts, facing := errgroup.WithContext(serving)
	fronts.Go(func() error { return s.api.Run(facing, s.apiListener) })
	fronts.Go(func() error { return s.fabric.Run(facing) })
	if s.tls != nil {
		fronts.Go(func() error { return s.tls.run(facing) })
	}
	fronts.Go(func() error { return s.grants.run(facing) })
	fronts.Go(func() error { return s.vmms.Run(facing) })
	fronts.Go(func() error { return s.changefeed.Run(facing) })
	fronts.Go(func() error { return s.triton.run(facing) })
	fronts.Go(func() error { return s.cnapi.Run(facing) })
	if s.addresses != nil {
		fronts.Go(func() error { return s.addresses.Run(facing) })
	}
	fronts.Go(func() error { return s.compare.run(facing) })
	fronts.Go(func() error { return s.backups.Run(facing) })
	fronts.Go(func() error { return s.places.run(facing) })
	fronts.Go(func() error { return s.debug.Run(facing) })
	fronts.Go(func() error { return s.gateways.run(facing) })
	if s.svp != nil {
		fronts.Go(func() error { return s.mappings.Run(facing) })
		fronts.Go(func() error { return s.svp.Run(facing, s.svpListener) })
		fronts.Go(func() error { return s.shootdowns.Share(facing, s.sharing()) })
	}
	g.Go(func() error {
		defer stop()
		return fronts.Wait()
	})
	g.Go(func() error {
		err := s.store.Run(storing)
		endHung(err, s.cfg.Logger, s.cfg.Exit)
		if storing.Err() == nil && err == nil {
			err = raftstore.ErrStopped
		}
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return err
	})
	s.cfg.Logger.Info("server runs", "server", s.cfg.Store.ID, "api", s.apiListener.Addr(), "svp", s.cfg.SVP, "triton", s.triton.where(), "raft", s.cfg.Store.Listen, "data", s.cfg.Store.Dir)
	if s.cfg.Insecure {
		s.cfg.Logger.Warn("no TLS: any client that reaches these ports can read and write the log")
	}
	for _, warning := range slices.Concat(svpWarnings(s.cfg), s.cfg.Drill.warnings()) {
		s.cfg.Logger.Warn(warning)
	}
	err := g.Wait()
	return errors.Join(err, s.store.Close(), s.audit.Close())
}

// progress returns the head of this server's log, and how far a replica is behind the leader.
func (s *Server) progress() (head log.Seq, lag time.Duration) {
	return s.store.Head().Seq, s.store.Status().Lag
}

// Collectors are the metrics of GET /metrics.
func (s *Server) Collectors() []prometheus.Collector { return s.api.Collectors() }

// Address is the address of the API.
func (s *Server) Address() net.Addr { return s.apiListener.Addr() }

// Leading reports whether this server leads.
func (s *Server) Leading() bool {
	_, leads := s.store.Leading()
	return leads
}

// close releases what Open has opened, if Open fails.
func (s *Server) close() error {
	var errs []error
	for _, l := range []net.Listener{s.apiListener, s.svpListener} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	if s.triton != nil {
		errs = append(errs, s.triton.close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	errs = append(errs, s.audit.Close(), s.debug.Close())
	return errors.Join(errs...)
}

// Store is the server's replica of the log.
func (s *Server) Store() *raftstore.Store { return s.store }
