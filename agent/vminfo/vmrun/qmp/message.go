package qmp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// MaxLine bounds the bytes of one message. QEMU's answers to the commands that are used
// here, and its events, have less than 1 KiB.
const MaxLine = 64 << 10

// maxText bounds the bytes of a name or reason that is kept of a message.
const maxText = 200

// ErrMessage: what QEMU sent is no message of QMP.
var ErrMessage = errors.New("qmp: not a message of QMP")

// Names of events (qapi/run-state.json of QEMU).
const (
	Shutdown = "SHUTDOWN"       // the machine ends: Guest, Reason
	Reset    = "RESET"          // it begins anew: Guest, Reason
	Stop     = "STOP"           // its processors are halted
	Resume   = "RESUME"         // and go on
	Panicked = "GUEST_PANICKED" // the guest's kernel reported its end
)

// Event is an event of QEMU. Of an event that is not one of the names above, only the
// name and the time are of use.
type Event struct {
	Name   string
	At     time.Time
	Guest  bool   // the guest caused it
	Reason string // ShutdownCause of QEMU, such as guest-shutdown, host-signal, guest-panic
}

// message is any message of QEMU. One of its fields says which.
type message struct {
	Greeting *json.RawMessage `json:"QMP"`
	Return   *json.RawMessage `json:"return"`
	Error    *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event     *string `json:"event"`
	Timestamp struct {
		Seconds      int64 `json:"seconds"`
		Microseconds int64 `json:"microseconds"`
	} `json:"timestamp"`
	Data struct {
		Guest  bool   `json:"guest"`
		Reason string `json:"reason"`
	} `json:"data"`
	ID *json.RawMessage `json:"id"`
}

// parse reads one line. Error: ErrMessage.
func parse(line []byte) (message, error) {
	var m message
	if len(line) > MaxLine {
		return m, fmt.Errorf("%w: %d bytes, more than %d", ErrMessage, len(line), MaxLine)
	}
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' {
		return m, fmt.Errorf("%w: %.40q", ErrMessage, line)
	}
	if err := json.Unmarshal(line, &m); err != nil {
		// An event whose data has another form is one that is not used here.
		var name struct {
			Event *string `json:"event"`
		}
		if json.Unmarshal(line, &name) != nil || name.Event == nil {
			return m, fmt.Errorf("%w: %.40q: %w", ErrMessage, line, err)
		}
		return message{Event: name.Event}, nil
	}
	if m.Greeting == nil && m.Return == nil && m.Error == nil && m.Event == nil {
		return m, fmt.Errorf("%w: no greeting, return, error or event: %.40q", ErrMessage, line)
	}
	return m, nil
}

// event returns the event of a message that is one.
func (m message) event() Event {
	at := time.Unix(m.Timestamp.Seconds, m.Timestamp.Microseconds*int64(time.Microsecond)).UTC()
	return Event{Name: clip(*m.Event), At: at, Guest: m.Data.Guest, Reason: clip(m.Data.Reason)}
}

// clip bounds a text of QEMU's, which may be of any length and have any bytes.
func clip(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	return string(bytes.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, []byte(text)))
}
