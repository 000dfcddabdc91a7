package sdnotify

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

// RefusedPause is how long a daemon waits before it ends with the mistake in its settings
// with which it ended the last time, too. Its unit starts it again without end, because a
// mended file must be enough; without the pause that would be a start, and half a dozen
// lines in the journal, each second. With it, it is two starts a minute.
const RefusedPause = 30 * time.Second

// refusedFile is the file in the folder of RUNTIME_DIRECTORY that has the last mistake.
const refusedFile = "refused"

// Refused is called when a daemon is about to end because of a mistake in its settings,
// before it ends: what is wrong becomes its status, and if it ended with the same mistake
// the last time, Refused waits RefusedPause, or until ctx is done. So the first start after
// an edit fails at once, and its repetitions are rare. A process that systemd did not start
// waits for nothing.
func Refused(ctx context.Context, mistake string) {
	s, err := FromEnvironment()
	if s == nil || err != nil || !started() {
		return
	}
	_ = s.send("STATUS=" + line("cannot start: "+mistake)) // the exit code and the journal say it too
	if !repeated(mistake) {
		return
	}
	pause := time.NewTimer(RefusedPause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}

// repeated reports whether the last mistake was the same, and remembers this one. Where
// nothing can be remembered, each is a repetition.
func repeated(mistake string) bool {
	folder := os.Getenv("RUNTIME_DIRECTORY")
	if folder == "" {
		return true
	}
	path := filepath.Join(folder, refusedFile)
	last, err := os.ReadFile(path)
	if err == nil && string(last) == mistake {
		return true
	}
	return os.WriteFile(path, []byte(mistake), 0o600) != nil
}
