package main

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v2"

	"rutter/api/auth/tlsgate"
	"rutter/cmd/rutter/confine"
	"rutter/raftstore"
)

// privateUmask keeps what a server writes to its owner.
const privateUmask = 0o077

// confineServer takes from a server, whose ports are open, what it does not need:
// files that are not its own, and all capabilities, but for files of another user
// that it was given.
func confineServer(cfg serverConfig, logger *slog.Logger) {
	paths := []string{cfg.Store.Dir}
	write, read := paths, []string(nil)
	if cfg.TLS != "" {
		client, peer := tlsgate.ClientPaths(cfg.TLS), tlsgate.PeerPaths(cfg.TLS)
		paths = append(paths, cfg.TLS, client.Key, peer.Key)
		write = append(write, cfg.TLS)
		read = confine.Around(cfg.TLS, client.Cert, client.Key, client.CA, peer.Cert, peer.Key, peer.CA)
	}
	if cfg.Drill != nil {
		read = append(read, filepath.Dir(cfg.Drill.path))
	}
	version, err := confine.Files(write, read)
	switch {
	case err != nil:
		logger.Warn("files stay as they are: Landlock failed", "error", err)
	case version == 0:
		logger.Info("files stay as they are: this kernel has no Landlock")
	default:
		logger.Info("files restricted to those of the server", "landlock", version, "write", write)
	}
	drop(0, paths, logger)
}

// agentNeeds is what an agent needs to work on links.
const agentNeeds = confine.NetAdmin | confine.NetBroadcast | confine.SysAdmin

// confineAgent takes from an agent what it does not need. One that starts VMs keeps
// what those may need, and one that runs what operators send keeps all.
func confineAgent(c *cli.Context, logger *slog.Logger) {
	if c.Bool("allow-execute") {
		logger.Info("capabilities kept: commands of --allow-execute may need them")
		return
	}
	if c.String("manifests") != "off" {
		left, err := confine.Bound(confine.Machines)
		told(left, err, logger)
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
	told(left, err, logger)
}

func told(left confine.Set, err error, logger *slog.Logger) {
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

// privateAgentFolder is privateFolder of an agent, which goes on without its disk:
// only a folder that others may open ends it.
func privateAgentFolder(path string, logger *slog.Logger) error {
	err := privateFolder(path, logger, "cache.db", "agent.lock")
	if err == nil || errors.Is(err, confine.ErrFolder) && !errors.Is(err, syscall.EROFS) {
		return err
	}
	logger.Error("the data folder cannot be used: this node goes on from memory", "error", err)
	return nil
}

// privateServerFolder is privateFolder of a server, whose files are closed too.
func privateServerFolder(cfg raftstore.Config, logger *slog.Logger) error {
	syscall.Umask(privateUmask)
	return privateFolder(cfg.Dir, logger, "changes.db", "raft.db", "audit.ndjson")
}
