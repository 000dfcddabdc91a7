package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// answerWithin bounds the wait for the greeting and for each answer. QEMU answers in
	// milliseconds, unless its main loop stands still.
	answerWithin = 5 * time.Second
	// maxBetween bounds the events that may come before an answer.
	maxBetween = 256
	// maxKept bounds the events that are kept while an answer is awaited; the oldest go.
	maxKept = 32
)

// Errors of a Conn.
var (
	// ErrRefused: QEMU answered with an error.
	ErrRefused = errors.New("qmp: QEMU refused")
	// ErrNoAnswer: QEMU did not answer in time. Another client may have its socket, which
	// serves one at a time.
	ErrNoAnswer = errors.New("qmp: QEMU does not answer")
	// ErrFlood: QEMU sent maxBetween events instead of an answer.
	ErrFlood = errors.New("qmp: QEMU sends events instead of an answer")
)

// Conn is a connection to a QEMU.
type Conn struct {
	conn net.Conn
	in   *bufio.Reader
	kept []Event
	sent int64 // commands
}

// Open connects to a QEMU's socket, whose path may be of any length, and makes the
// connection ready for commands. The whole takes at most 3 times 5 s (answerWithin).
// Errors: ErrNoAnswer, ErrMessage, and those of the socket: fs.ErrNotExist if there is none,
// ECONNREFUSED if that QEMU has ended.
func Open(ctx context.Context, path string) (*Conn, error) {
	conn, err := dial(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("qmp: %w", err)
	}
	c := &Conn{conn: conn, in: bufio.NewReaderSize(conn, MaxLine)}
	if err := c.greet(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// dial connects by a short name of the folder, because a socket's address has 107 bytes.
func dial(ctx context.Context, path string) (net.Conn, error) {
	folder, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return new(net.Dialer).DialContext(within, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(path)))
}

func (c *Conn) greet(ctx context.Context) error {
	done := c.within(ctx)
	m, err := c.read()
	done()
	switch {
	case err != nil:
		return c.why(ctx, err, "greeting")
	case m.Greeting == nil:
		return fmt.Errorf("%w: no greeting first", ErrMessage)
	}
	_, err = c.Execute(ctx, "qmp_capabilities")
	return err
}

// within bounds what follows by answerWithin and ctx, until done is called.
func (c *Conn) within(ctx context.Context) (done func()) {
	_ = c.conn.SetDeadline(time.Now().Add(answerWithin)) // a closed connection fails when it is used
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

// why says what an error of the connection means.
func (c *Conn) why(ctx context.Context, err error, what string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("qmp: %s: %w", what, ctx.Err())
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: no %s within %s", ErrNoAnswer, what, answerWithin)
	}
	return fmt.Errorf("qmp: %s: %w", what, err)
}

// read reads one message of at most MaxLine bytes.
func (c *Conn) read() (message, error) {
	line, err := c.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return message{}, fmt.Errorf("%w: more than %d bytes", ErrMessage, MaxLine)
	}
	if err != nil {
		return message{}, err
	}
	return parse(line)
}

// Execute sends a command without arguments and returns what QEMU answers. Events that come
// meanwhile are returned by Next. Errors: ErrRefused, ErrNoAnswer, ErrMessage, ErrFlood; io.EOF
// if QEMU ended. The connection is of no use after an error other than ErrRefused.
func (c *Conn) Execute(ctx context.Context, command string) (json.RawMessage, error) {
	defer c.within(ctx)()
	c.sent++
	text, err := json.Marshal(struct {
		Execute string `json:"execute"`
		ID      int64  `json:"id"`
	}{command, c.sent})
	if err != nil {
		return nil, fmt.Errorf("qmp: %w", err)
	}
	if _, err := c.conn.Write(append(text, '\n')); err != nil {
		return nil, c.why(ctx, err, command)
	}
	for range maxBetween {
		m, err := c.read()
		switch {
		case err != nil:
			return nil, c.why(ctx, err, command)
		case m.Event != nil:
			c.keep(m.event())
		case m.ID == nil || string(*m.ID) != fmt.Sprint(c.sent):
			return nil, fmt.Errorf("%w: an answer to something else than %s", ErrMessage, command)
		case m.Error != nil:
			return nil, fmt.Errorf("%w: %s: %s", ErrRefused, command, clip(m.Error.Desc))
		case m.Return != nil:
			return *m.Return, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrFlood, command)
}

func (c *Conn) keep(e Event) {
	if len(c.kept) == maxKept {
		c.kept = append(c.kept[:0], c.kept[1:]...)
	}
	c.kept = append(c.kept, e)
}

// Next waits for the next event, without a limit of time. Errors: io.EOF when QEMU has ended,
// ErrMessage.
func (c *Conn) Next() (Event, error) {
	if len(c.kept) > 0 {
		e := c.kept[0]
		c.kept = c.kept[1:]
		return e, nil
	}
	_ = c.conn.SetDeadline(time.Time{}) // as in within
	m, err := c.read()
	if errors.Is(err, unix.ECONNRESET) {
		err = io.EOF // it ended before it had read all that was sent to it
	}
	if err != nil {
		return Event{}, fmt.Errorf("qmp: %w", err)
	}
	if m.Event == nil { // else a QEMU could send them as fast as this program reads
		return Event{}, fmt.Errorf("%w: an answer to nothing", ErrMessage)
	}
	return m.event(), nil
}

// Kept returns the events that came before an answer and were not returned by Next. They are
// there also when Execute failed.
func (c *Conn) Kept() []Event {
	kept := c.kept
	c.kept = nil
	return kept
}

// Close ends the connection, and with it a Next or Execute that waits.
func (c *Conn) Close() error { return c.conn.Close() }
