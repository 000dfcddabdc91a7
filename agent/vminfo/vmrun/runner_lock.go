package vmrun

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"rutter/log"
)

// lockName is the file of the folder of pid files whose bytes stand for VMs.
const lockName = ".lock"

// lockAgain is the pause between two attempts to lock a VM.
const lockAgain = 5 * time.Millisecond

// lock waits until no other caller, of this program or another, makes or ends the VM.
// Otherwise the end of one operation could remove what another has just made. The lock
// ends with unlock, or with the process (fcntl(2), F_OFD_SETLK).
func (r *Runner) lock(ctx context.Context, id log.UUID) (unlock func(), err error) {
	if err := os.MkdirAll(r.cfg.PIDs, 0o755); err != nil {
		return nil, fmt.Errorf("vminfo: VM %s: %w", id, err)
	}
	file, err := os.OpenFile(filepath.Join(r.cfg.PIDs, lockName), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("vminfo: VM %s: %w", id, err)
	}
	// Two VMs with the same byte wait for each other; that is harmless.
	at := int64(binary.BigEndian.Uint64(id[8:]) >> 1)
	for {
		err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1})
		if err == nil {
			return func() { _ = file.Close() }, nil // closing also releases a lock that was not taken
		}
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINTR) {
			select {
			case <-time.After(lockAgain):
				continue
			case <-ctx.Done():
				err = fmt.Errorf("it is being started or stopped by another caller: %w", ctx.Err())
			}
		}
		_ = file.Close()
		return nil, fmt.Errorf("vminfo: VM %s: %w", id, err)
	}
}
