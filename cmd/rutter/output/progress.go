package output

import (
	"fmt"
	"io"
	"os"
	"time"

	"rutter/cmd/rutter/term"
)

// progressPause is the least time between two lines of progress.
const progressPause = time.Second

// Progress prints the progress of long work.
func Progress(w io.Writer, what string) func(done, all int64) {
	last := time.Now()
	return func(done, all int64) {
		if time.Since(last) < progressPause || all <= 0 {
			return
		}
		last = time.Now()
		Printf(w, "%d %% %s (%d of %d)\n", 100*done/all, what, done, all)
	}
}

// Percent shows progress on the standard error's last line, if that is a terminal. what
// is a word of the program.
func Percent(what string) func(done, all int64) {
	if !term.Terminal(os.Stderr) {
		return func(_, _ int64) {}
	}
	last := int64(-1)
	return func(done, all int64) {
		if percent := done * 100 / max(all, 1); percent != last {
			last = percent
			fmt.Fprintf(os.Stderr, "\r%s %d of %d (%d %%)\x1b[K", what, done, all, percent)
			if done >= all {
				fmt.Fprintln(os.Stderr)
			}
		}
	}
}
