//go:build release

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// debianDir has the scripts that dpkg runs.
const debianDir = "scripts/release/debian"

// writeDeb makes the Debian package of an architecture. The packer reads its files from
// a folder of its own below work.
func writeDeb(o options, arch string, items []item, work string) error {
	stage := filepath.Join(work, "deb-"+arch)
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "rutter", Arch: arch, Platform: "linux", MTime: o.built,
		Version: o.version, VersionSchema: "none",
		Section: "net", Priority: "optional", Maintainer: o.maintainer,
		Description: description,
		Overridables: nfpm.Overridables{
			// systemd makes the server's user (systemd-sysusers) and runs the units.
			Depends:    []string{"systemd (>= 252)"},
			Recommends: []string{"iproute2", "ca-certificates"},
			Deb:        nfpm.Deb{Compression: "gzip:6"}, // as all here: 9 takes twice as long for 0.4% less
			Suggests:   []string{"bash-completion", "qemu-system", "libvirt-daemon-system", "prometheus"},
			Scripts: nfpm.Scripts{
				PostInstall: filepath.Join(debianDir, "postinst"),
				PreRemove:   filepath.Join(debianDir, "prerm"),
				PostRemove:  filepath.Join(debianDir, "postrm"),
			},
		},
	})
	for _, it := range items {
		if it.packed {
			it.path, it.data = it.path+".gz", compressed(it.data)
		}
		source := filepath.Join(stage, it.path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(source), 0o755), os.WriteFile(source, it.data, it.mode)); err != nil {
			return err
		}
		kind := files.TypeFile
		if it.conf {
			kind = files.TypeConfigNoReplace
		}
		info.Contents = append(info.Contents, &files.Content{
			Source: source, Destination: it.path, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: it.mode, MTime: o.built},
		})
	}
	if err := nfpm.Validate(info); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := deb.Default.Package(info, &b); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, fmt.Sprintf("rutter_%s_%s.deb", o.version, arch)), b.Bytes(), 0o644)
}

// description is that of the package: a line, then a longer text.
const description = `replicated change log for the network of a private cloud
Rutter keeps the objects of a private cloud's network (networks, network
interfaces, fabrics, compute nodes) in a log that servers agree on by Raft.
Agents on compute nodes program the kernel's network as the log says.
.
The one program is server, agent and command-line tool. No unit is enabled
by the installation: systemctl enable --now rutter-server or rutter-agent
does it, after /etc/rutter/rutter.toml was edited.`
