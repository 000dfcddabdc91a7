package sdnotify

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"
)

// Report is what a daemon says of itself at one moment.
type Report struct {
	// Ready: what depends on this daemon may start. Once true it is not taken back.
	Ready bool
	// Status is what it does, or waits for, in one line for people.
	Status string
	// Stuck is why it makes no progress that only a restart can mend; "": it makes some,
	// or waits for something that a restart does not bring, such as a disk or a server.
	// While it is set the watchdog gets no news, and systemd restarts the daemon.
	Stuck string
}

const (
	// lookEvery is the longest time between two looks at a daemon.
	lookEvery = time.Second
	// readyEvery is that at one that is not ready yet, for which systemctl start waits.
	readyEvery = 50 * time.Millisecond
)

// Run runs a daemon, and meanwhile tells systemd what look reports, until run has ended.
// When ctx is done it says that the daemon stops. look is called about once a second, and
// more often until the daemon is ready; a look that does not return is as good as one that
// reports Stuck. Errors of the socket are logged, once until it works again, and hinder
// nothing.
func (s *Socket) Run(ctx context.Context, look func(now time.Time) Report, logger *slog.Logger, run func(ctx context.Context) error) error {
	if s == nil {
		return run(ctx)
	}
	ended, looked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(looked)
		s.tell(ctx, look, logger, ended)
	}()
	err := run(ctx)
	close(ended)
	// A look that hangs must not keep a daemon from its end.
	select {
	case <-looked:
	case <-time.After(lookEvery):
	}
	return err
}

// Reload tells systemd that settings or files are being read again, and afterwards that
// the daemon is ready as before.
func (s *Socket) Reload(reload func()) error {
	if s == nil {
		reload()
		return nil
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	begun := s.send("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/int64(time.Microsecond)))
	reload()
	if err := s.send("READY=1"); err != nil {
		return err
	}
	return begun
}

// teller is what systemd has been told.
type teller struct {
	socket *Socket
	logger *slog.Logger
	ready  bool
	status string
	stuck  string
	failed bool // the last datagram could not be sent
}

func (s *Socket) tell(ctx context.Context, look func(time.Time) Report, logger *slog.Logger, ended <-chan struct{}) {
	every := lookEvery
	if s.watchdog > 0 {
		every = min(every, s.watchdog/4)
	}
	t := teller{socket: s, logger: logger}
	for {
		t.news(look(time.Now()))
		next := every
		if !t.ready {
			next = min(every, readyEvery)
		}
		select {
		case <-time.After(next):
		case <-ended:
			t.send("STOPPING=1")
			return
		case <-ctx.Done():
			t.send("STOPPING=1", "STATUS=stops")
			return
		}
	}
}

// news sends what systemd does not know yet, and that the daemon lives.
func (t *teller) news(r Report) {
	var all []string
	if r.Ready && !t.ready {
		all = append(all, "READY=1")
	}
	status := line(r.Status)
	if r.Stuck != "" {
		status = line("stuck: " + r.Stuck)
	}
	if status != t.status {
		all = append(all, "STATUS="+status)
	}
	if r.Stuck == "" && t.socket.watchdog > 0 {
		all = append(all, "WATCHDOG=1")
	}
	if r.Stuck != "" && t.stuck == "" {
		t.logger.Error("this process makes no progress: its watchdog gets no news until it does, and systemd restarts it then", "reason", r.Stuck, "watchdog", t.socket.watchdog)
	}
	t.stuck = r.Stuck
	if len(all) == 0 || !t.send(all...) {
		return
	}
	t.ready, t.status = t.ready || r.Ready, status
}

func (t *teller) send(assignments ...string) bool {
	err := t.socket.send(assignments...)
	if err != nil && !t.failed {
		t.logger.Warn("systemd cannot be told what this process does", "error", err)
	}
	t.failed = err != nil
	return err == nil
}
