package vmhost

import (
	"context"
	"log/slog"

	"rutter/agent/vminfo/manifests"
	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmhelper"
	"rutter/agent/vminfo/vminfod"
	"rutter/agent/vminfo/vmrun"
	"rutter/agent/vmsource"
	"rutter/log"

	"github.com/urfave/cli/v2"

	"rutter/agent/vminfo"
	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/term"
)

// FolderFlags are the folders in which the VMs of a compute node are described
// and run.
func FolderFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "manifests", EnvVars: []string{"RUTTER_MANIFESTS"}, Value: "/etc/rutter/vms", Usage: "`FOLDER` of the VMs' manifests, or off"},
		&cli.StringFlag{Name: "vm-run", EnvVars: []string{"RUTTER_VM_RUN"}, Value: "/run/rutter/vms", Usage: "`FOLDER` of the pid files of the VMs' init processes"},
		&cli.StringFlag{Name: "vm-cgroup", EnvVars: []string{"RUTTER_VM_CGROUP"}, Value: system.DefaultCgroup(), Usage: "`FOLDER` of the VMs' cgroups"},
	}
}

// ServiceFlags are those of a program that serves the VMs of its compute node.
func ServiceFlags() []cli.Flag {
	return append(FolderFlags(),
		&cli.StringFlag{Name: "vminfod", EnvVars: []string{"RUTTER_VMINFOD_LISTEN"}, Value: "127.0.0.1:9090", Usage: "`ADDRESS` at which VMs are served as vminfod does, or off"},
		&cli.StringFlag{Name: "vminfod-users", EnvVars: []string{"RUTTER_VMINFOD_USERS"}, Value: "root", Usage: "`USERS` of this machine, by name or number and separated by commas, who get all fields of VMs there; others get state and size, no metadata, NICs or owners; all: every client gets all"},
		&cli.StringFlag{Name: "follow-vminfod", EnvVars: []string{"RUTTER_FOLLOW_VMINFOD"}, Usage: "`ADDRESS` of another vminfod whose VMs are taken over, Triton's for one"},
	)
}

// Folders are where the VMs of a compute node are, and the other vminfod that is
// followed.
type Folders struct {
	Manifests string // off: none
	PIDs      string // of the VMs' init processes
	NetNS     string // named network namespaces, as ip-netns(8) keeps them
	EtcNetNS  string // of their resolv.conf; "": as ip-netns(8) keeps it
	Cgroup    string
	Follow    string   // address of another vminfod; "": none
	CN        log.UUID // shown as the VMs' server_uuid; zero: not shown
	Users     string   // who may see all of VMs by our vminfod: localhttp.ParseUsers
	Helper    string   // socket of the helper that runs VMs; "": this process does
	Version   string   // of this program, which the helper logs
}

// FoldersOf are those that the flags name: FolderFlags or ServiceFlags, --netns, and
// --etc-netns where it is one.
func FoldersOf(c *cli.Context) Folders {
	return Folders{Manifests: c.String("manifests"), PIDs: c.String("vm-run"), NetNS: c.String("netns"), EtcNetNS: c.String("etc-netns"), Cgroup: c.String("vm-cgroup"), Follow: c.String("follow-vminfod"), Users: c.String("vminfod-users")}
}

// Local has the VMs of this node.
type Local struct {
	Service *vminfo.Service
	Runner  Runner // nil: no manifests
	// Helper is the Runner, if a helper runs VMs; otherwise nil. Its Run must be called.
	Helper *vmhelper.Client
	// Adopts are the names of the sources whose VMs run on this node because of programs of
	// its own: they get VMMs.
	Adopts []string
}

// NewLocal makes the service of the VMs of f and of more sources: its Service is nil if
// there are none.
func NewLocal(f Folders, logger *slog.Logger, more ...vmsource.Source) (l Local, err error) {
	var sources []vmsource.Source
	if f.Manifests != "off" {
		if err := l.run(f, logger); err != nil {
			return l, err
		}
		folder, err := newFolderSource(manifests.Config{Manifests: f.Manifests, PIDs: f.PIDs, NetNS: f.NetNS, Cgroup: f.Cgroup, CN: f.CN, Logger: logger}, l.Runner)
		if err != nil {
			return l, err
		}
		sources, l.Adopts = append(sources, folder), append(l.Adopts, folder.Name())
	}
	for _, source := range more {
		sources, l.Adopts = append(sources, source), append(l.Adopts, source.Name())
	}
	if f.Follow != "" {
		stream, err := vminfod.NewStream(vminfod.StreamConfig{Client: clientOf(f.Follow, "rutter"), Logger: logger})
		if err != nil {
			return l, err
		}
		sources = append(sources, stream)
	}
	if len(sources) == 0 {
		return l, nil
	}
	users, err := localhttp.ParseUsers(f.Users)
	if err != nil {
		return l, term.Usagef("--vminfod-users: %w", err)
	}
	l.Service, err = vminfo.New(vminfo.Config{Sources: sources, Protect: localhttp.Protect, Allow: users.Allow, Logger: logger})
	return l, err
}

// Runner runs the VMs of manifests: a vmrun.Runner, or a vmhelper.Client.
type Runner interface {
	vmsource.Control
	vmsource.Preparer
	Manifest(id log.UUID) (vmdoc.Value, error)
	Stamp(id log.UUID) string
	Create(v vmdoc.Value) error
	Edit(id log.UUID, change func(vmdoc.Value) vmdoc.Value) error
	Remove(ctx context.Context, id log.UUID) error
	CheckCgroup() error
}

// run makes what runs the VMs of f.
func (l *Local) run(f Folders, logger *slog.Logger) error {
	runner, err := NewRunner(f)
	if err != nil {
		return err
	}
	if l.Runner = runner; f.Helper != "" {
		l.Helper = vmhelper.NewClient(vmhelper.ClientConfig{Socket: f.Helper, Reader: runner, Version: f.Version, Logger: logger})
		l.Runner = l.Helper
	}
	return nil
}

// NewRunner is the runner of the VMs of f.
func NewRunner(f Folders) (*vmrun.Runner, error) {
	return vmrun.New(vmrun.Config{Manifests: f.Manifests, PIDs: f.PIDs, NetNS: f.NetNS, EtcNetNS: f.EtcNetNS, Cgroup: f.Cgroup})
}
