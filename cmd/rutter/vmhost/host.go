package vmhost

import (
	"log/slog"

	"github.com/urfave/cli/v2"

	"rutter/agent/vminfo"
)

// FolderFlags are the folders in which the VMs of a compute node are described
// and run.
func FolderFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "manifests", EnvVars: []string{"RUTTER_MANIFESTS"}, Value: "/etc/rutter/vms", Usage: "`FOLDER` of the VMs' manifests, or off"},
		&cli.StringFlag{Name: "vm-run", EnvVars: []string{"RUTTER_VM_RUN"}, Value: "/run/rutter/vms", Usage: "`FOLDER` of the pid files of the VMs' init processes"},
		&cli.StringFlag{Name: "vm-cgroup", EnvVars: []string{"RUTTER_VM_CGROUP"}, Value: vminfo.DefaultCgroup(), Usage: "`FOLDER` of the VMs' cgroups"},
	}
}

// ServiceFlags are those of a program that serves the VMs of its compute node.
func ServiceFlags() []cli.Flag {
	return append(FolderFlags(),
		&cli.StringFlag{Name: "vminfod", EnvVars: []string{"RUTTER_VMINFOD_LISTEN"}, Value: "127.0.0.1:9090", Usage: "`ADDRESS` at which VMs are served as vminfod does, or off"},
		&cli.StringFlag{Name: "follow-vminfod", EnvVars: []string{"RUTTER_FOLLOW_VMINFOD"}, Usage: "`ADDRESS` of another vminfod whose VMs are taken over, Triton's for one"},
	)
}

// NewService makes the service that the flags ask for; folder is nil if they ask
// for none. It needs --netns as well.
func NewService(c *cli.Context, logger *slog.Logger) (service *vminfo.Service, folder *vminfo.Folder, err error) {
	var sources []vminfo.Source
	if c.String("manifests") != "off" {
		if folder, err = vminfo.NewFolder(vminfo.FolderConfig{
			Manifests: c.String("manifests"), PIDs: c.String("vm-run"), NetNS: c.String("netns"), Cgroup: c.String("vm-cgroup"), Logger: logger,
		}); err != nil {
			return nil, nil, err
		}
		sources = append(sources, folder)
	}
	if address := c.String("follow-vminfod"); address != "" {
		stream, err := vminfo.NewStream(vminfo.StreamConfig{Client: vminfo.NewClient(address, "rutter"), Logger: logger})
		if err != nil {
			return nil, nil, err
		}
		sources = append(sources, stream)
	}
	if len(sources) == 0 {
		return nil, nil, nil
	}
	service, err = vminfo.New(vminfo.Config{Sources: sources, Logger: logger})
	return service, folder, err
}

// NewRunner is the runner of the folders that the flags name.
func NewRunner(c *cli.Context) (*vminfo.Runner, error) {
	return vminfo.NewRunner(vminfo.RunnerConfig{Manifests: c.String("manifests"), PIDs: c.String("vm-run"), NetNS: c.String("netns"), Cgroup: c.String("vm-cgroup")})
}
