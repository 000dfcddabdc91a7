package agentcmd

import (
	"errors"
	"log/slog"
	"syscall"

	"github.com/urfave/cli/v2"

	"rutter/api/auth/tlsgate"
	"rutter/cmd/rutter/confine"
)

// agentNeeds are the capabilities that an agent needs to program links, and to answer
// requests of VMs on them.
const agentNeeds = confine.NetAdmin | confine.NetBroadcast | confine.NetRaw | confine.SysAdmin

// confineAgent drops the capabilities that an agent does not need. An agent that starts VMs
// itself, and asks no helper, keeps those that it needs to give each VM its users and to end
// it. An agent that runs operators' commands keeps all.
func confineAgent(c *cli.Context, helper string, logger *slog.Logger) {
	if c.Bool("allow-execute") {
		logger.Info("capabilities kept: commands of --allow-execute may need them")
		return
	}
	manifests := c.String("manifests")
	if manifests != "off" && helper == "" {
		left, err := confine.Bound(confine.Machines)
		confine.LogDropped(left, err, logger)
		return
	}
	paths := []string{c.String("data"), c.String("etc-netns")}
	if manifests != "off" {
		paths = append(paths, manifests, c.String("vm-run"))
	}
	if folder := c.String("tls-dir"); folder != "" {
		paths = append(paths, folder, tlsgate.ClientPaths(folder).Key)
	}
	confine.DropLogged(agentNeeds, paths, logger)
}

// privateFolder is confine.PrivateFolder for an agent. An agent works without its disk,
// so only a folder that other users can open is an error.
func privateFolder(path string, logger *slog.Logger) error {
	err := confine.PrivateFolder(path, logger, "cache.db", "agent.lock")
	if err == nil || errors.Is(err, confine.ErrFolder) && !errors.Is(err, syscall.EROFS) {
		return err
	}
	logger.Error("the data folder cannot be used: this node goes on from memory", "error", err)
	return nil
}
