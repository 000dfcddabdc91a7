package sdnotify

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// patience is how long a datagram may take on a busy machine.
const patience = 20 * time.Second

// listen stands for systemd: what is sent to the socket in the environment arrives line by
// line in the channel.
func listen(t *testing.T) <-chan string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	lines := make(chan string, 1000)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				close(lines)
				return
			}
			for _, l := range strings.Split(string(buf[:n]), "\n") {
				lines <- l
			}
		}
	}()
	return lines
}

// await reads lines until one begins with want, and returns those before it.
func await(t *testing.T, lines <-chan string, want string) (before []string) {
	t.Helper()
	end := time.After(patience)
	for {
		select {
		case l, ok := <-lines:
			if strings.HasPrefix(l, want) {
				return append(before, l)
			}
			if !ok {
				t.Fatalf("the socket is closed; got %q, want %q", before, want)
			}
			before = append(before, l)
		case <-end:
			t.Fatalf("no %q came; got %q", want, before)
		}
	}
}

// TestLifeOfADaemon: what it does is told as it changes; ready once; the watchdog as long as
// the daemon makes progress, and no longer; at the end that it stops.
func TestLifeOfADaemon(t *testing.T) {
	lines := listen(t)
	t.Setenv("WATCHDOG_USEC", "40000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	s, err := FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	var now atomic.Pointer[Report]
	now.Store(&Report{Status: "reads\nits  state"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	failure := errors.New("the end")
	go func() {
		done <- s.Run(ctx, func(time.Time) Report { return *now.Load() }, slog.New(slog.DiscardHandler), func(ctx context.Context) error {
			<-ctx.Done()
			return failure
		})
	}()
	if got := await(t, lines, "WATCHDOG=1"); !slices.Equal(got, []string{"STATUS=reads its state", "WATCHDOG=1"}) {
		t.Errorf("at first: %q", got)
	}
	now.Store(&Report{Ready: true, Status: "serves"})
	if got := slices.DeleteFunc(await(t, lines, "STATUS="), func(l string) bool { return l == "WATCHDOG=1" }); !slices.Equal(got, []string{"READY=1", "STATUS=serves"}) {
		t.Errorf("when it is ready: %q", got)
	}
	if got := append(await(t, lines, "WATCHDOG=1"), await(t, lines, "WATCHDOG=1")...); !slices.Equal(got, []string{"WATCHDOG=1", "WATCHDOG=1"}) {
		t.Errorf("while nothing changes: %q", got)
	}
	now.Store(&Report{Ready: true, Status: "serves", Stuck: "no lock"})
	await(t, lines, "STATUS=stuck: no lock")
	select {
	case l := <-lines:
		t.Errorf("while it is stuck: %q", l)
	case <-time.After(200 * time.Millisecond): // five times the watchdog's
	}
	now.Store(&Report{Ready: true, Status: "serves"})
	if got := await(t, lines, "WATCHDOG=1"); !slices.Equal(got, []string{"STATUS=serves", "WATCHDOG=1"}) {
		t.Errorf("when it goes on: %q", got)
	}
	cancel()
	await(t, lines, "STOPPING=1")
	if err := <-done; !errors.Is(err, failure) {
		t.Errorf("Run returned %v", err)
	}
}

// TestHangingLook: a look that does not return gives no news to the watchdog, and does not
// keep the daemon from its end.
func TestHangingLook(t *testing.T) {
	lines := listen(t)
	t.Setenv("WATCHDOG_USEC", "40000")
	t.Setenv("WATCHDOG_PID", "")
	s, err := FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	err = s.Run(t.Context(), func(time.Time) Report { <-hang; return Report{} }, slog.New(slog.DiscardHandler), func(context.Context) error {
		select {
		case l := <-lines:
			return errors.New("got " + l)
		case <-time.After(200 * time.Millisecond):
			return nil
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestReload: systemd is told when it began, by the clock that it compares with its own.
func TestReload(t *testing.T) {
	lines := listen(t)
	s, err := FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	reloaded := false
	if err := s.Reload(func() { reloaded = true }); err != nil || !reloaded {
		t.Errorf("reloaded %v, %v", reloaded, err)
	}
	got := await(t, lines, "READY=1")
	if len(got) != 3 || got[0] != "RELOADING=1" || !strings.HasPrefix(got[1], "MONOTONIC_USEC=") {
		t.Errorf("got %q", got)
	}
}

// TestNoSystemd: a daemon that systemd did not start runs as ever.
func TestNoSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	s, err := FromEnvironment()
	if s != nil || err != nil {
		t.Fatalf("%v, %v", s, err)
	}
	ran := false
	err = s.Run(t.Context(), nil, nil, func(context.Context) error { ran = true; return nil })
	if err != nil || !ran || s.Reload(func() {}) != nil {
		t.Errorf("ran %v, %v", ran, err)
	}
}

// TestEnvironment: what systemd would not set is refused, and the watchdog of another
// process is not ours.
func TestEnvironment(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	t.Setenv("WATCHDOG_PID", "1")
	t.Setenv("WATCHDOG_USEC", "30000000")
	if s, err := FromEnvironment(); err != nil || s.watchdog != 0 {
		t.Errorf("of another process: %+v, %v", s, err)
	}
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	if s, err := FromEnvironment(); err != nil || s.watchdog != 30*time.Second {
		t.Errorf("ours: %+v, %v", s, err)
	}
	for name, value := range map[string]string{"WATCHDOG_USEC": "soon", "NOTIFY_SOCKET": "notify"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if s, err := FromEnvironment(); !errors.Is(err, errSocket) {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

// TestRefused: the first mistake ends the daemon at once, the same one again after a pause,
// which a stop ends, and another one at once.
func TestRefused(t *testing.T) {
	lines := listen(t)
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	t.Setenv("SYSTEMD_EXEC_PID", strconv.Itoa(os.Getpid()))
	waits := func(mistake string) bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan struct{})
		go func() { defer close(done); Refused(ctx, mistake) }()
		await(t, lines, "STATUS=cannot start: "+mistake)
		select {
		case <-done:
			return false
		case <-time.After(300 * time.Millisecond):
		}
		cancel()
		<-done
		return true
	}
	if waits("--cn is missing") {
		t.Error("the first mistake waited")
	}
	if !waits("--cn is missing") {
		t.Error("the same mistake did not wait")
	}
	if waits("--servers is missing") {
		t.Error("another mistake waited")
	}
	// A child of the daemon, such as a hook, has its environment and is not the daemon.
	t.Setenv("SYSTEMD_EXEC_PID", "1")
	begun := time.Now()
	Refused(t.Context(), "--servers is missing")
	if took := time.Since(begun); took > RefusedPause/2 {
		t.Errorf("a child waited %v", took)
	}
}

// TestProgress: a counter that stands still counts only while work waits for it.
func TestProgress(t *testing.T) {
	var p Progress
	begun := time.Now()
	at := func(s int) time.Time { return begun.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		second int
		count  uint64
		waits  bool
		want   time.Duration
	}{
		{0, 5, true, 0},
		{9, 5, true, 9 * time.Second},
		{10, 6, true, 0},
		{19, 6, true, 9 * time.Second},
		{20, 6, false, 0},
		{30, 6, true, 10 * time.Second},
		{31, 5, true, 0},
	} {
		if got := p.Still(c.count, c.waits, at(c.second)); got != c.want {
			t.Errorf("at %d s: %v, want %v", c.second, got, c.want)
		}
	}
}

// TestLine: a status is one line of a length that systemctl shows.
func TestLine(t *testing.T) {
	if got := line("waits\n for  it\t"); got != "waits for it" {
		t.Errorf("got %q", got)
	}
	if got := line(strings.Repeat("ü", 400)); len(got) > maxStatus+5 || !strings.HasSuffix(got, "ü …") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
