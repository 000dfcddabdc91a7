package term

import (
	"fmt"
	"io"
	"time"
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
		fmt.Fprintf(w, "%d %% %s (%d of %d)\n", 100*done/all, what, done, all)
	}
}
