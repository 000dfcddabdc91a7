package sdnotify

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Socket is where systemd listens. nil is that of a daemon which systemd did not start, and
// sends nothing. Its methods may be called from any goroutine.
type Socket struct {
	path     string
	watchdog time.Duration // of the unit (WatchdogSec); 0: none
}

// errSocket is the error of FromEnvironment.
var errSocket = errors.New("sdnotify: the environment that systemd sets is not as it should be")

// FromEnvironment returns the socket that systemd named for this process, and nil if it
// named none: the process was started by something else.
func FromEnvironment() (*Socket, error) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil, nil //nolint:nilnil // a nil Socket is one that says nothing
	}
	if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "@") {
		return nil, fmt.Errorf("%w: NOTIFY_SOCKET=%q is neither a path nor an abstract name", errSocket, path)
	}
	s := &Socket{path: path}
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return s, nil // it is another process that the watchdog waits for
	}
	if text := os.Getenv("WATCHDOG_USEC"); text != "" {
		usec, err := strconv.ParseInt(text, 10, 64)
		if err != nil || usec <= 0 {
			return nil, fmt.Errorf("%w: WATCHDOG_USEC=%q is no number of microseconds", errSocket, text)
		}
		s.watchdog = time.Duration(usec) * time.Microsecond
	}
	return s, nil
}

// started reports whether systemd started this very process, and not one that has only
// inherited its environment.
func started() bool { return os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid()) }

// maxStatus bounds the bytes of a status line: systemctl shows it in one line.
const maxStatus = 300

// line makes a text fit for STATUS=: one line, not too long.
func line(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxStatus {
		text = strings.ToValidUTF8(text[:maxStatus], "") + " …"
	}
	return text
}

// send sends assignments. systemd may be executing itself anew and not read: then the
// datagram waits in the socket.
func (s *Socket) send(assignments ...string) error {
	if s == nil {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.path, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(sendPatience)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(strings.Join(assignments, "\n")))
	return err
}

// sendPatience bounds the wait for a systemd whose queue of datagrams is full.
const sendPatience = time.Second
