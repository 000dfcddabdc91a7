package disk

import "syscall"

// Space returns the bytes that a folder's file system has free for this process, and has
// in all; 0 and 0 if they are not known.
func Space(dir string) (free, size int64) {
	var s syscall.Statfs_t // statfs(2)
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize
}
