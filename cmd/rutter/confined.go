package main

import (
	"fmt"
	"log/slog"
	"syscall"

	"github.com/urfave/cli/v2"

	"rutter/api/tlsgate"
	"rutter/cmd/rutter/confine"
	"rutter/raftstore"
)

// privateUmask keeps what a server writes to its owner.
const privateUmask = 0o077

// confineServer takes from a server, whose ports are open, what it does not need:
// all capabilities, but for files of another user that it was given.
func confineServer(cfg serverConfig, logger *slog.Logger) {
	paths := []string{cfg.Store.Dir}
	if cfg.TLS != "" {
		paths = append(paths, cfg.TLS, tlsgate.ClientPaths(cfg.TLS).Key, tlsgate.PeerPaths(cfg.TLS).Key)
	}
	drop(0, paths, logger)
}

// agentNeeds is what an agent needs to work on links.
const agentNeeds = confine.NetAdmin | confine.NetBroadcast | confine.SysAdmin

// confineAgent takes from an agent what it does not need. One that runs VMs, or
// what operators send, keeps all: those programs are whatever they are, and have
// from it what they need.
func confineAgent(c *cli.Context, logger *slog.Logger) {
	if c.String("manifests") != "off" || c.Bool("allow-execute") {
		logger.Info("capabilities kept: VMs of --manifests, or --allow-execute, may need them")
		return
	}
	paths := []string{c.String("data"), c.String("etc-netns")}
	if folder := c.String("tls-dir"); folder != "" {
		paths = append(paths, folder, tlsgate.ClientPaths(folder).Key)
	}
	drop(agentNeeds, paths, logger)
}

func drop(needs confine.Set, paths []string, logger *slog.Logger) {
	if foreign := confine.Foreign(paths...); foreign != "" && needs&confine.DACOverride == 0 {
		needs |= confine.DACOverride
		logger.Warn("a path belongs to another user: give it to the one of this process, and it needs no right to the files of others", "path", foreign)
	}
	left, err := confine.Drop(needs)
	if err != nil {
		logger.Warn("capabilities stay as they are", "capabilities", left, "error", err)
		return
	}
	logger.Info("capabilities dropped", "left", left)
}

// privateFolder closes a daemon's folder to others.
func privateFolder(path string, logger *slog.Logger, marks ...string) error {
	closed, err := confine.Folder(path, marks...)
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	if closed {
		logger.Warn("the data folder was open to others of this machine: it is closed now", "folder", path)
	}
	return nil
}

// privateServerFolder is privateFolder of a server, whose files are closed too.
func privateServerFolder(cfg raftstore.Config, logger *slog.Logger) error {
	syscall.Umask(privateUmask)
	return privateFolder(cfg.Dir, logger, "changes.db", "raft.db", "audit.ndjson")
}
