package metrics

import "golang.org/x/sys/unix"

// freeBytes is how many bytes a program of this user may still write to the disk of a
// folder. It is false if that is not known.
func freeBytes(folder string) (float64, bool) {
	var fs unix.Statfs_t
	if folder == "" || unix.Statfs(folder, &fs) != nil {
		return 0, false
	}
	return float64(fs.Bavail) * float64(fs.Bsize), true
}
