package log

import (
	"errors"
	"fmt"
	"strings"
)

// Codes of refusals: NAPI's words (spec/napi.md section 3.3) where it has one.
const (
	CodeInvalidParameters  = "InvalidParameters"  // HTTP 422
	CodeInUse              = "InUse"              // 422
	CodeSubnetFull         = "SubnetFull"         // 507
	CodeSubnetsExhausted   = "SubnetsExhausted"   // 507
	CodeNoRoom             = "NoRoom"             // 507: ErrNoRoom, no refusal of the log's
	CodeResourceNotFound   = "ResourceNotFound"   // 404
	CodePreconditionFailed = "PreconditionFailed" // 412
	CodeNotAuthorized      = "NotAuthorized"      // 403
	CodeTooOld             = "ChangeTooOld"       // 409: the change id is older than the dedupe window
	// CodeUndecided: this program failed to decide the change. Nothing of it was
	// applied, and all servers say so. 500.
	CodeUndecided = "ChangeNotDecided"
	CodeIDReused  = "ChangeIDReused" // 409: the change id belongs to another change
	CodeSkipped   = "ChangeSkipped"  // 409: an operator took the cluster past the change
	CodeLimit     = "LimitReached"   // 422: its author owns as much as it may
)

// Codes of the elements of a refusal (spec/napi.md section 3.3).
const (
	ElementInvalid   = "InvalidParameter"
	ElementMissing   = "MissingParameter"
	ElementDuplicate = "Duplicate"
	ElementUsedBy    = "UsedBy"
	ElementUnknown   = "UnknownParameters"
)

// Refusal says why a change was not accepted. It is a value that every server
// computes the same way; nothing of a refused change is applied.
type Refusal struct {
	Code    string       `json:"code"`
	Message string       `json:"message"`
	Errors  []FieldError `json:"errors,omitempty"`
}

// FieldError names one field, what is wrong with it, and what to do.
type FieldError struct {
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
	// Type and ID name the object in the way, where Code is ElementUsedBy or
	// ElementDuplicate.
	Type string `json:"type,omitempty"`
	ID   string `json:"id,omitempty"`
	// Invalid are the values of a list that are at fault, sorted.
	Invalid []string `json:"invalid,omitempty"`
}

// Error implements error.
func (r *Refusal) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", r.Code, r.Message)
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "; %s: %s", e.Field, e.Message)
		if e.Remedy != "" {
			fmt.Fprintf(&b, " (%s)", e.Remedy)
		}
	}
	return b.String()
}

// Sentinels of the log. Each says what its reader does about it.
var (
	// ErrCompacted: the cursor is older than what is kept. The reader takes a snapshot.
	ErrCompacted = errors.New("log: cursor is older than the log keeps")
	// ErrAhead: the cursor is beyond the head of this log. The reader starts anew from a snapshot.
	ErrAhead = errors.New("log: cursor is ahead of the log")
	// ErrOtherLog: the cursor's cluster or chain hash is not this log's. The reader starts anew.
	ErrOtherLog = errors.New("log: cursor is of another log")
	// ErrCorrupt: bytes do not decode, or a checksum or the chain does not fit. They are never served.
	ErrCorrupt = errors.New("log: corrupt bytes")
	// ErrFormat: the bytes are of a format version that this program does not know: upgrade it.
	ErrFormat = errors.New("log: unknown format version")
	// ErrNoRoom: the servers' disks have no room for what grows. Nothing was written;
	// deletes are taken, and everything else again by itself once there is room.
	ErrNoRoom = errors.New("log: no room on the servers' disks")
	// ErrTooLarge: a bound of this package is exceeded.
	ErrTooLarge = errors.New("log: too large")
)
