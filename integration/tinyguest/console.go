package tinyguest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// patience bounds each wait for a guest, of a machine that may be busy.
const patience = 3 * time.Minute

// Console is the serial console of a guest.
type Console struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
	sent int // lines
}

// Open connects to a guest's console, a Unix socket, and waits until the guest answers.
func Open(t testing.TB, socket string) *Console {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &Console{t: t, conn: conn, in: bufio.NewReader(conn)}
	c.awaitBoot()
	return c
}

// awaitBoot returns when the guest has answered any line: while it boots, it reads a part of
// a line, or nothing.
func (c *Console) awaitBoot() {
	c.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		_ = c.conn.SetDeadline(time.Now().Add(time.Second)) // as in Try
		_, err := fmt.Fprintln(c.conn, "echo @@0 0")
		for text := ""; err == nil; {
			if text, err = c.in.ReadString('\n'); err == nil && strings.HasPrefix(text, "@@0") {
				c.Run("true") // what was answered late comes before it
				return
			}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			c.t.Fatalf("console: %v", err)
		}
	}
	c.t.Fatal("the guest does not answer at its console")
}

// Panic ends the guest's first process, and so its kernel. It is the last use of a console:
// what the kernel says is read and dropped, because QEMU waits for a client that reads nothing.
func (c *Console) Panic() {
	c.t.Helper()
	_ = c.conn.SetDeadline(time.Now().Add(patience)) // as in Try
	if _, err := fmt.Fprintln(c.conn, panicLine); err != nil {
		c.t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, c.conn) }() // ends with the guest
}

// errStatus: a line's status was not 0.
var errStatus = errors.New("its status is not 0")

// Try runs a line in the guest, and returns what it printed. Answers to earlier lines, whose
// time had passed, are left out.
func (c *Console) Try(line string, within time.Duration) (string, error) {
	c.sent++
	_ = c.conn.SetDeadline(time.Now().Add(within)) // a closed connection fails when it is used
	end := fmt.Sprintf("@@%d", c.sent)
	if _, err := fmt.Fprintf(c.conn, "%s; echo %s $?\n", line, end); err != nil {
		return "", err
	}
	var out strings.Builder
	for {
		text, err := c.in.ReadString('\n')
		if err != nil {
			return out.String(), err
		}
		text = strings.TrimRight(text, "\r\n")
		before, status, ended := strings.Cut(text, end+" ")
		switch {
		case ended && before == "" && status == "0":
			return out.String(), nil
		case ended && before == "":
			return out.String(), fmt.Errorf("%w: %s: %s", errStatus, status, out.String())
		case strings.HasPrefix(text, "@@"):
			out.Reset() // the end of an earlier line
		default:
			out.WriteString(text + "\n")
		}
	}
}

// Run is Try of what must succeed.
func (c *Console) Run(line string) string {
	c.t.Helper()
	out, err := c.Try(line, patience)
	if err != nil {
		c.t.Fatalf("in the guest: %s: %v", line, err)
	}
	return strings.TrimSpace(out)
}

// Fails is Try of what must not succeed.
func (c *Console) Fails(line string) {
	c.t.Helper()
	if out, err := c.Try(line, patience); !errors.Is(err, errStatus) {
		c.t.Errorf("in the guest: %s: got %q, %v, want a status other than 0", line, out, err)
	}
}
