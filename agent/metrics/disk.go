package metrics

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// diskTime bounds the wait for a disk's answer.
const diskTime = 200 * time.Millisecond

// disk asks the disk of a folder for its room. A disk that hangs keeps no scrape: it is
// asked once, and the last answer counts until the next.
type disk struct {
	folder string

	mu    sync.Mutex // protects what follows
	asked bool       // a question is open
	free  float64
	known bool
}

// freeBytes is how many bytes a program of this user may still write to the disk. It is
// false if that is not known.
func (d *disk) freeBytes() (float64, bool) {
	if d.folder == "" {
		return 0, false
	}
	answered := make(chan struct{})
	d.mu.Lock()
	if !d.asked {
		d.asked = true
		go func() {
			var fs unix.Statfs_t
			err := unix.Statfs(d.folder, &fs)
			d.mu.Lock()
			defer d.mu.Unlock()
			d.asked, d.free, d.known = false, float64(fs.Bavail)*float64(fs.Bsize), err == nil
			close(answered)
		}()
	}
	d.mu.Unlock()
	select {
	case <-answered:
	case <-time.After(diskTime):
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.free, d.known
}
