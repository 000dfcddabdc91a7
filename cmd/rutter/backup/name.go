package backup

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"rutter/log"
)

const (
	suffix     = ".snapshot"
	timeFormat = "20060102T150405Z"
	partEnd    = ".part"    // of a file that is being written
	scratchEnd = ".scratch" // of the folder in which one is restored
)

// serverName is what the id of a server with backups may be: it is a part of file names.
var serverName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckServer refuses the id of a server that cannot be a part of a file name.
func CheckServer(id string) error {
	if !serverName.MatchString(id) {
		return fmt.Errorf("the server's id %q is a part of the names of its backups: it may have letters, digits, dots, underlines and hyphens only", id)
	}
	return nil
}

// File is one backup in the folder, by its name.
type File struct {
	Name    string    `json:"name"`
	Cluster log.UUID  `json:"cluster"`
	Seq     log.Seq   `json:"seq"`
	At      time.Time `json:"time"` // when it was begun, by the server's clock
	Bytes   int64     `json:"bytes"`
	Checked time.Time `json:"checked"` // when it was restored last, by the server's clock
}

// fileName returns the name of a backup: rutter-SERVER-CLUSTER-SEQ-TIME.snapshot.
func fileName(server string, f File) string {
	return fmt.Sprintf("rutter-%s-%s-%d-%s%s", server, f.Cluster, f.Seq, f.At.UTC().Format(timeFormat), suffix)
}

// parseName is the inverse of fileName; ok is false for the name of any other file.
func parseName(server, name string) (f File, ok bool) {
	rest, found := strings.CutPrefix(name, "rutter-"+server+"-")
	rest, ends := strings.CutSuffix(rest, suffix)
	const uuid = 36 // characters
	if !found || !ends || len(rest) < uuid+1 || rest[uuid] != '-' {
		return f, false
	}
	seq, at, found := strings.Cut(rest[uuid+1:], "-")
	if !found {
		return f, false
	}
	cluster, err := log.ParseUUID(rest[:uuid])
	if err != nil {
		return f, false
	}
	number, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		return f, false
	}
	when, err := time.Parse(timeFormat, at)
	if err != nil {
		return f, false
	}
	f = File{Name: name, Cluster: cluster, Seq: log.Seq(number), At: when}
	return f, fileName(server, f) == name
}

// pendingName is the hidden name of what a backup of a server is made in.
func pendingName(server string, cluster log.UUID, end string) string {
	return fmt.Sprintf(".rutter-%s-%s%s", server, cluster, end)
}

// anyName matches the name of a backup of any server.
var anyName = regexp.MustCompile(`^rutter-[A-Za-z0-9._-]+-([0-9a-f-]{36})-[0-9]+-[0-9]{8}T[0-9]{6}Z\.snapshot$`)

// logOf returns the log that a file is a backup of, by its name.
func logOf(name string) (cluster log.UUID, ok bool) {
	if found := anyName.FindStringSubmatch(name); found != nil {
		id, err := log.ParseUUID(found[1])
		return id, err == nil
	}
	return cluster, false
}
