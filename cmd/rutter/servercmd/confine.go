package servercmd

import (
	"log/slog"
	"path/filepath"
	"syscall"

	"rutter/api/auth/tlsgate"
	"rutter/cmd/rutter/confine"
	"rutter/cmd/rutter/serve"
	"rutter/raftstore"
)

// privateUmask makes a server's files readable by their owner only.
const privateUmask = 0o077

// confineServer restricts a server whose ports are open: to its own files, and to no
// capabilities. If it was given files of another user, it keeps the capability for
// those; if it has service addresses, those to set and to announce them.
func confineServer(cfg serve.Options, logger *slog.Logger) {
	paths := []string{cfg.Store.Dir}
	write, read := paths, []string(nil)
	if cfg.TLS != "" {
		client, peer := tlsgate.ClientPaths(cfg.TLS), tlsgate.PeerPaths(cfg.TLS)
		paths = append(paths, cfg.TLS, client.Key, peer.Key)
		write = append(write, cfg.TLS)
		read = confine.FoldersOf(cfg.TLS, client.Cert, client.Key, client.CA, peer.Cert, peer.Key, peer.CA)
	}
	if folder := cfg.Debug.Folder(); folder != "" {
		write = append(write, folder) // the socket is removed at the end
	}
	if cfg.Drill != nil {
		read = append(read, filepath.Dir(cfg.Drill.Path))
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
	var needs confine.Set
	if len(cfg.ServiceAddresses) > 0 {
		needs = confine.NetAdmin | confine.NetRaw
	}
	confine.DropLogged(needs, paths, logger)
}

// privateServerFolder is PrivateFolder for a server. It closes the files in the folder
// too.
func privateServerFolder(cfg raftstore.Config, logger *slog.Logger) error {
	syscall.Umask(privateUmask)
	return confine.PrivateFolder(cfg.Dir, logger, "changes.db", "raft.db", "audit.ndjson")
}
