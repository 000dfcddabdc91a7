package vmhelper

import (
	"context"
	"errors"
	"strings"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmrun"
)

// codes are the errors that keep their identity on the way to the client. A code is never
// given another meaning; one that a client does not know is only text to it.
var codes = []struct {
	code string
	err  error
}{
	{"running", vmrun.ErrRunning},
	{"not_running", vmrun.ErrNotRunning},
	{"no_vm", vmrun.ErrNoVM},
	{"exists", vmrun.ErrExists},
	{"busy_manifest", vmrun.ErrBusyManifest},
	{"no_cgroup", vmrun.ErrNoCgroup},
	{"no_root", vmrun.ErrNoRoot},
	{"root", vmrun.ErrRoot},
	{"no_init", vmrun.ErrNoInit},
	{"init_ended", vmrun.ErrInitEnded},
	{"no_kvm", vmrun.ErrNoKVM},
	{"no_tap", vmrun.ErrNoTap},
	{"no_manifests", system.ErrNoManifests},
	{"timeout", vmdoc.ErrTimeout},
	{"deadline", context.DeadlineExceeded},
	{"request", ErrRequest},
	{"unknown_act", ErrUnknownAct},
	{"folders", ErrFolders},
	{"busy", ErrBusy},
	{"peer", ErrPeer},
}

// remote is an error as it is sent.
type remote struct {
	Text  string   `json:"text"`
	Codes []string `json:"codes,omitempty"`
}

// remoteOf is an error for the client; nil of none.
func remoteOf(err error) *remote {
	if err == nil {
		return nil
	}
	text := strings.ToValidUTF8(err.Error(), "?")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	r := &remote{Text: text}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			r.Codes = append(r.Codes, c.code)
		}
	}
	return r
}

// Error is an error of the helper, with the identities that it had there.
type Error struct {
	Text string
	is   []error
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the errors of this program's that the helper's error was.
func (e *Error) Unwrap() []error { return e.is }

// local is the error that was sent; nil of none.
func (r *remote) local() error {
	if r == nil {
		return nil
	}
	e := &Error{Text: r.Text}
	for _, c := range codes {
		for _, code := range r.Codes {
			if code == c.code {
				e.is = append(e.is, c.err)
			}
		}
	}
	return e
}
