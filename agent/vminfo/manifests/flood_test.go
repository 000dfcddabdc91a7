package manifests

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFloodBeforeTheEnd: a QEMU whose guest floods us with events, and then ends, holds up the
// other VMs of the folder no longer than its buffer takes to read, and the reason of its end is
// known.
func TestFloodBeforeTheEnd(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "events")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- flood(listener) }()
	m := &machine{cancel: func() {}, done: make(chan struct{}), hurry: make(chan struct{}), runState: unanswered}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m.cancel = cancel
	go func() {
		defer close(m.done)
		m.run(ctx, socket, func() {})
	}()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	for m.state() != "running" {
		time.Sleep(time.Millisecond)
	}
	if reason := new(Folder).machineEnded(&vmRecord{machine: m}); reason != "guest-panic" {
		t.Errorf("it ended because of %q, want what QEMU said after its flood", reason)
	}
}

// flood answers one client as QEMU does, sends events, the last of which is the end, and closes.
func flood(listener net.Listener) error {
	defer listener.Close()
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprintln(conn, `{"QMP":{"version":{},"capabilities":[]}}`)
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.Contains(line, "qmp_capabilities") {
			fmt.Fprintln(conn, `{"return":{},"id":1}`)
			continue
		}
		fmt.Fprintln(conn, `{"return":{"status":"running","running":true},"id":2}`)
		break
	}
	for range 3 * eventBurst { // less than the socket's buffer, more than is taken in lastWords
		fmt.Fprintln(conn, `{"event":"RTC_CHANGE","data":{"offset":1},"timestamp":{"seconds":1,"microseconds":1}}`)
	}
	_, err = fmt.Fprintln(conn, `{"event":"SHUTDOWN","data":{"guest":true,"reason":"guest-panic"},"timestamp":{"seconds":1,"microseconds":1}}`)
	return err
}
