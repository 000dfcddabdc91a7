package servercmd

import (
	"path/filepath"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/backup"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// backupFlags are those of `rutter server` for its backups. Each server has its own
// schedule, and its own folder.
func backupFlags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{Name: "backup-every", EnvVars: []string{"RUTTER_BACKUP_EVERY"}, Usage: "make a verified backup each such `TIME`, as in 24h, and one that was missed when the server starts; 0 is never; docs/backup.md"},
		&cli.StringFlag{Name: "backup-folder", EnvVars: []string{"RUTTER_BACKUP_FOLDER"}, Usage: "`FOLDER` of the backups, which must be there; on another disk than --data, with room for those kept and two more"},
		&cli.IntFlag{Name: "backup-keep", EnvVars: []string{"RUTTER_BACKUP_KEEP"}, Value: backup.DefaultKeep, Usage: "`NUMBER` of backups of this server and its log that are kept: the newest"},
		&cli.StringFlag{Name: "backup-rate", EnvVars: []string{"RUTTER_BACKUP_RATE"}, Value: "64MiB", Usage: "`SIZE` that is read of the store in a second for a backup, at most"},
	}
}

// backupOf reads the flags.
func backupOf(c *cli.Context) (s backup.Settings, err error) {
	s.Every, s.Keep, s.Folder = c.Duration("backup-every"), c.Int("backup-keep"), c.String("backup-folder")
	rate, err := output.ParseSize(c.String("backup-rate"))
	switch {
	case err != nil || rate < backup.LeastRate || rate > 1<<40:
		return s, term.Usagef("--backup-rate %q: want a size from 1MiB to 1TiB, as in 64MiB", c.String("backup-rate"))
	case s.Every == 0:
		return backup.Settings{}, nil
	case s.Every < backup.LeastEvery:
		return s, term.Usagef("--backup-every %v: want at least %v, as in 24h, or 0 for no backups", s.Every, backup.LeastEvery)
	case s.Keep < 1 || s.Keep > backup.MaxKeep:
		return s, term.Usagef("--backup-keep %d: want a number from 1 to %d", s.Keep, backup.MaxKeep)
	case !filepath.IsAbs(s.Folder):
		return s, term.Usagef("--backup-folder %q: want the whole path of a folder for --backup-every, as in /backup/rutter", s.Folder)
	case filepath.Clean(s.Folder) == filepath.Clean(c.String("data")):
		return s, term.Usagef("--backup-folder %s is the data folder: a backup must outlive it; give a folder on another disk", s.Folder)
	}
	s.Rate = int64(rate)
	if err := backup.CheckServer(c.String("id")); err != nil {
		return s, term.Usagef("--backup-every: %w", err)
	}
	return s, nil
}
