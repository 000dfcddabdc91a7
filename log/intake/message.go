package intake

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"rutter/log"
)

// Welcome is the first frame down, and comes again when Leads has changed.
type Welcome struct {
	Version uint16 // AppendWelcome writes it; 0 means this program's
	// Leads says that the server is the cluster's leader. Other servers accept changes
	// too, and forward each to the leader.
	Leads bool
}

// AppendWelcome appends the frame of m.
func AppendWelcome(b []byte, m Welcome) ([]byte, error) {
	if m.Version == 0 {
		m.Version = Version
	}
	payload := binary.BigEndian.AppendUint16(nil, m.Version)
	leads := byte(0)
	if m.Leads {
		leads = 1
	}
	return Append(b, TypeWelcome, append(payload, leads))
}

// DecodeWelcome reads the payload of a welcome. Errors: ErrFrame.
func DecodeWelcome(payload []byte) (Welcome, error) {
	if len(payload) < 3 || payload[2] > 1 {
		return Welcome{}, fmt.Errorf("welcome %x: %w", payload[:min(len(payload), 3)], ErrFrame)
	}
	return Welcome{binary.BigEndian.Uint16(payload), payload[2] == 1}, nil
}

// Code is why a change was not decided. The numbers are on the wire.
type Code uint8

// The codes of failed changes.
const (
	// CodeOverloaded: too many changes wait. Not written: send it again later, and
	// fewer at once.
	CodeOverloaded Code = 1
	// CodeNoLeader: there is no leader now. Not written: send it again.
	CodeNoLeader Code = 2
	// CodeUnknown: it may have been written. Send it again with the same id.
	CodeUnknown Code = 3
	// CodeBad: no server can accept this change. Not written: do not send it again.
	CodeBad Code = 4
	// CodeBudget: its author has used up a budget, which the text names. Not
	// written: send it again after Failed.After.
	CodeBudget Code = 5
	// CodeNoRoom: the servers' disks are too full for a change that needs room. Not
	// written: send it again when there is room.
	CodeNoRoom Code = 7
)

// String names the code.
func (c Code) String() string {
	switch c {
	case CodeOverloaded:
		return "overloaded"
	case CodeNoLeader:
		return "no leader"
	case CodeUnknown:
		return "outcome unknown"
	case CodeBad:
		return "bad change"
	case CodeBudget:
		return "budget used up"
	case CodeNoRoom:
		return "no room on disk"
	}
	return "unknown code"
}

// Failed says that a change was not decided, as far as this server knows. A refusal is
// no Failed: it is a result.
type Failed struct {
	ChangeID log.UUID
	Code     Code
	Text     string // for people
	// After is the time until the budget allows the change, for CodeBudget. It is sent
	// in milliseconds, at most about 49 days.
	After time.Duration
}

// AppendFailed appends the frame of m.
func AppendFailed(b []byte, m Failed) ([]byte, error) {
	payload := append(make([]byte, 0, 17+len(m.Text)), m.ChangeID[:]...)
	payload = append(payload, byte(m.Code))
	if m.Code == CodeBudget {
		payload = binary.BigEndian.AppendUint32(payload, uint32(min(max(m.After.Milliseconds(), 0), math.MaxUint32)))
	}
	return Append(b, TypeFailed, append(payload, cut(m.Text)...))
}

// DecodeFailed reads the payload of a failed. Errors: ErrFrame.
func DecodeFailed(payload []byte) (Failed, error) {
	if len(payload) < 17 {
		return Failed{}, fmt.Errorf("failed of %d bytes: %w", len(payload), ErrFrame)
	}
	m := Failed{ChangeID: log.UUID(payload[:16]), Code: Code(payload[16])}
	text := payload[17:]
	if m.Code == CodeBudget {
		if len(text) < 4 {
			return Failed{}, fmt.Errorf("failed of %d bytes, without a time: %w", len(payload), ErrFrame)
		}
		m.After, text = time.Duration(binary.BigEndian.Uint32(text))*time.Millisecond, text[4:]
	}
	m.Text = cut(string(text))
	return m, nil
}

// AppendDrain appends the frame that ends a stream in order.
func AppendDrain(b []byte, text string) ([]byte, error) {
	return Append(b, TypeDrain, []byte(cut(text)))
}

func cut(text string) string { return text[:min(len(text), maxText)] }
